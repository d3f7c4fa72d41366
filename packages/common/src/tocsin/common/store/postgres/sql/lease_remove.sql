-- Remove: forgets leases that ended more than $1 s ago and that no run and no shard holds. Returns (id).
-- The age is longer than any statement, so that no begin under way can still attach a run to one.
delete from leases l
 where l.expired_at < now() - $1::float8 * interval '1 second'
   and not exists (select from running r where r.lease_id = l.id)
   and not exists (select from shards s where s.owner = l.id)
returning l.id
