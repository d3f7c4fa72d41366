-- End backends: terminates the connections of expired leases; a frozen client can hold row locks for ever (rule 5).
-- $1 application names. Returns (pid). Every connection of a process carries its lease in application_name.
-- Found first, ended then: as a condition beside the others, `pg_terminate_backend` is the cheapest one, would be
-- tried first, and end every connection of the server.
with found as materialized (
    select pid from pg_stat_activity where application_name = any ($1) and datname = current_database()
)
select pid from found where pg_terminate_backend(pid)
