-- Live executors of each cell, as the Supervisor counts them: by their heartbeats, for where nobody else lives nobody has
-- judged. Those of generation 0 were placed by no Supervisor. Returns (cell, live). Leases are few: read whole.
select cell, count(*)::int as live
  from leases
 where expired_at is null and not draining and generation > 0 and clock_timestamp() - heartbeat_at <= ttl
 group by cell
