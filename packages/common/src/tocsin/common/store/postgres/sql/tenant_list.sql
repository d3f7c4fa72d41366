-- A page of all tenants, oldest first. $1 after this id, $2 at most so many. Index: tenants_pkey.
select id, name, shard, weight, max_in_flight, max_in_flight_per_endpoint, move_to
  from tenants where id > $1 order by id limit $2
