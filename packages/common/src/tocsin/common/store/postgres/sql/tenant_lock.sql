-- Lock a tenant for a change of its limits or its cell. $1 id. Index: tenants_pkey.
select id, name, shard, weight, max_in_flight, max_in_flight_per_endpoint, move_to
  from tenants where id = $1 for no key update
