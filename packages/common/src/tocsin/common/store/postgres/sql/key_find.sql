-- The tenant of an API key. $1 hash. Index: api_keys_hash_key.
select k.id, k.tenant_id from api_keys k where k.hash = $1 and k.revoked_at is null
