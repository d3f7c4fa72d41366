-- Insert a tenant. $1 id, $2 name, $3 shard, $4 weight, $5 max_in_flight, $6 max_in_flight_per_endpoint, $7 signing secrets.
insert into tenants (id, name, shard, weight, max_in_flight, max_in_flight_per_endpoint, signing_secrets)
values ($1, $2, $3, $4, $5, $6, $7)
