-- Beat: renews a lease. $1 id, $2 draining. Returns (now, steady since): no row means that the lease has ended.
-- A beat more than ttl/4 after the last one starts the steady time anew: this process, or the database, was away.
update leases
   set heartbeat_at = clock_timestamp(),
       steady_since = case when clock_timestamp() - heartbeat_at > ttl / 4 then clock_timestamp() else steady_since end,
       draining = $2
 where id = $1 and expired_at is null
returning clock_timestamp() as now, steady_since
