-- Mark a running run of a locked task as cancelled; its completion writes the state. $1 run. Returns (run_id).
-- Index: running_pkey, asked once for each lease (`offset 0` keeps it so).
with held as materialized (
    select l.id
      from leases l
     cross join lateral (select from running where lease_id = l.id and run_id = $1 offset 0) r
)
update running set cancelled = true where lease_id = any (array(select id from held)) and run_id = $1 returning run_id
