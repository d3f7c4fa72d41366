-- The cells, as the Supervisor keeps them.
select cell, executors, tenant_id, closing, generation from placements order by cell
