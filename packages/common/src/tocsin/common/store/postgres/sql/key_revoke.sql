-- Revoke an API key. $1 id. Returns (tenant_id). Index: api_keys_pkey.
update api_keys set revoked_at = now() where id = $1 and revoked_at is null returning tenant_id
