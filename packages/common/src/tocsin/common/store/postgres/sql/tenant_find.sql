-- A tenant by name, or by id. $1 name, $2 id; one of them null.
select id, name, shard, weight, max_in_flight, max_in_flight_per_endpoint, move_to, signing_secrets
  from tenants where name = $1 or id = $2
