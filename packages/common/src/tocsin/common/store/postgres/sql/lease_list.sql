-- Leases of a cell, or of all where $1 is null, the live ones first. Returns what a person or the Supervisor reads of them.
select id, cell, generation, node, pid, zone_data, started_at, heartbeat_at, expired_at, draining,
       (select count(*) from shards s where s.owner = l.id)::int as shards,
       (select count(*) from running r where r.lease_id = l.id)::int as running
  from leases l
 where ($1::text is null or cell = $1)
 order by expired_at is not null, started_at
