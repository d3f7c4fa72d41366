-- Count held: runs that live leases other than mine hold of these tenants, for the caps of a new owner (rule 1).
-- $1 tenant ids, $2 my lease. Returns (tenant_id, count).
-- Reads running whole: it is as small as what is in flight, and a take-over is rare.
select r.tenant_id, count(*)::int as count
  from running r join leases l on l.id = r.lease_id and l.expired_at is null
 where r.tenant_id = any ($1) and r.lease_id <> $2
 group by r.tenant_id
