-- API keys of a tenant. $1 tenant. Index: api_keys_tenant.
select id, name, created_at, revoked_at from api_keys where tenant_id = $1 order by id
