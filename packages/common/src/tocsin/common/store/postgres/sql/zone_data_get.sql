-- The release of zone data that next rows are planned by, and those that live leases report. Once a second; both
-- tables are small.
select release, through, array(select distinct zone_data from leases where expired_at is null) as live,
       clock_timestamp() as now
  from zone_data
