-- Open a tenant's own cell, with k shards above all others. $1 tenant, $2 k. Returns (cell); no row: it has one.
-- A new statement after `cells_lock`, so that it sees the shards of the cell made before it.
with placed as (
    insert into placements (cell, executors, tenant_id, generation)
    values ('tenant-' || $1::uuid, $2, $1, (select max(generation) from placements))
    on conflict (cell) do nothing
    returning cell
),
numbered as (
    insert into shards (shard, cell, tenant_id, lane_first, lane_last)
    select (select greatest(max(shard), 63) from shards) + i, p.cell, $1, (i - 1) * 1024 / $2, i * 1024 / $2
      from placed p, generate_series(1, $2::int) i
)
select cell from placed
