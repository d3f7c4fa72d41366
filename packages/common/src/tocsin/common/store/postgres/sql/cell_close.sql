-- Close a tenant's own cell and ask for its move to a shared shard. $1 cell, $2 shard. Its owner moves it and lets go;
-- where several own it, they let go first, and the Supervisor moves it. Returns (id, again): the tenant, and whether
-- the cell was closing already.
with own as materialized (
    select cell, tenant_id, closing from placements where cell = $1 and tenant_id is not null for update
),
closed as (
    update placements p set closing = true from own o where p.cell = o.cell
)
update tenants t set move_to = nullif($2, t.shard) from own o where t.id = o.tenant_id
returning t.id, o.closing as again
