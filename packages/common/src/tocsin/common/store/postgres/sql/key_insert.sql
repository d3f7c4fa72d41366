-- Insert an API key. $1 id, $2 tenant, $3 name, $4 hash.
insert into api_keys (id, tenant_id, name, hash) values ($1, $2, $3, $4)
