-- End one backend and wait for it: $1 pid, $2 application name, $3 wait ms. Returns (gone).
-- The name is compared so that a pid used again by another connection is left alone.
select coalesce(
    (select pg_terminate_backend(pid, $3) from pg_stat_activity where pid = $1 and application_name = $2),
    true) as gone
