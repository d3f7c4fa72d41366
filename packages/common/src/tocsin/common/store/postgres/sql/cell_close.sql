-- Close a tenant's own cell and ask for its move to a shared shard. $1 cell, $2 shard. Its owner moves it and lets go;
-- where several own it, they let go first, and the Supervisor moves it.
with closed as (
    update placements set closing = true where cell = $1 and tenant_id is not null returning tenant_id
)
update tenants t set move_to = nullif($2, t.shard) from closed c where t.id = c.tenant_id returning t.id
