-- Remove a closing cell that no live lease and no tenant needs. $1 cell. Returns (cell).
with idle as materialized (
    select p.cell from placements p
     where p.cell = $1 and p.closing
       and not exists (select from leases l where l.cell = p.cell and l.expired_at is null)
       and not exists (select from tenants t join shards s on s.cell = p.cell and s.shard in (t.shard, t.move_to))
),
gone as (
    delete from shards s using idle i where s.cell = i.cell
)
delete from placements p using idle i where p.cell = i.cell returning p.cell
