-- How many shards of its own a tenant has. $1 tenant. Returns (shards). A few rows in all.
select count(*)::int as shards from shards where tenant_id = $1
