-- UTC days of which the DEFAULT partition holds rows. Returns (day, rows).
select (ended_at at time zone 'UTC')::date as day, count(*)::int as rows from history_default group by 1 order by 1
