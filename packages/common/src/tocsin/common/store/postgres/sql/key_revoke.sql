-- Revoke an API key. $1 id. Returns (id).
update api_keys set revoked_at = now() where id = $1 and revoked_at is null returning id
