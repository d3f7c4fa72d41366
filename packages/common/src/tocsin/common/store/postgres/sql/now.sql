-- The database's time.
select clock_timestamp() as now
