-- Judge: marks overdue leases expired (rules 6 and 7 of the protocol's leases). $1 the judge's lease. Returns (id).
-- The judge must itself have seen the database up, without a break, for a whole ttl of the lease judged. A heartbeat
-- from the future is not overdue. Where more than half are overdue at once the database was rather away than they
-- dead: they get one more ttl. All on the database's clock. Leases are few: read whole.
with live as materialized (
    select l.id, l.ttl, l.heartbeat_at, clock_timestamp() - l.heartbeat_at > l.ttl as overdue
      from leases l where l.expired_at is null
),
me as materialized (
    select steady_since from leases
     where id = $1 and expired_at is null and clock_timestamp() - heartbeat_at <= ttl / 4
),
many as materialized (
    select count(*) filter (where overdue) * 2 > count(*) as suspicious from live
),
guilty as materialized (
    select l.id
      from live l, me, many
     where l.id <> $1
       and l.overdue
       and clock_timestamp() - me.steady_since >= l.ttl
       and (not many.suspicious or clock_timestamp() - l.heartbeat_at > 2 * l.ttl)
)
update leases l set expired_at = clock_timestamp()
  from guilty g
 where l.id = g.id and l.expired_at is null and clock_timestamp() - l.heartbeat_at > l.ttl
returning l.id
