-- End backends: terminates the connections of every expired lease; a frozen client can hold row locks for ever (rule 5).
-- Returns (pid). Every connection of a process carries its lease in application_name. Asked each time somebody judges,
-- so that a judge that dies between the two statements leaves nothing undone.
-- Found first, ended then: as a condition beside the others, `pg_terminate_backend` is the cheapest one, would be
-- tried first, and end every connection of the server.
with found as materialized (
    select a.pid
      from leases l join pg_stat_activity a on a.application_name = 'tocsin ' || l.id
     where l.expired_at is not null and a.datname = current_database()
)
select pid from found where pg_terminate_backend(pid)
