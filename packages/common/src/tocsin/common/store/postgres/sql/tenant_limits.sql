-- Set the limits of a locked tenant. $1 id, $2 weight, $3 max_in_flight, $4 max_in_flight_per_endpoint.
-- Returns the tenant. Index: tenants_pkey.
update tenants set weight = $2, max_in_flight = $3, max_in_flight_per_endpoint = $4 where id = $1
returning id, name, shard, weight, max_in_flight, max_in_flight_per_endpoint, move_to
