-- Held: what a lease holds in running, for adopting lost begins (rule 4). $1 lease.
-- Returns (run_id, fence, version, seconds since its begin). Index: running_pkey.
select run_id, fence, version, extract(epoch from clock_timestamp() - begun_at)::float8 as age
  from running where lease_id = $1
