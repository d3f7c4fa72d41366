-- Suspects: of a page of tasks by id, those with several next rows, and the active ones with none. $1 after, $2 limit.
-- Returns (id, suspect), the page's last task always. Indexes: tasks_pkey, pending_task.
-- One statement, so one snapshot: a begin or a write under way replaces a next row before it or after it, never half.
-- A task whose one instant or end is over a day ago has long ended. Instants are stored as ISO 8601 in UTC, so they
-- compare as texts, and one put in by hand cannot fail the page.
with page as materialized (
    select id, state, plan from tasks where id > $1 order by id limit $2
),
counted as materialized (
    select p.id,
           case when p.state = 'deleted' then false
                when n.next_rows > 1 then true
                when n.next_rows = 1 or p.state <> 'active' then false
                else coalesce(p.plan -> 'schedule' ->> 'at', p.plan ->> 'end', 'never') collate "C"
                     >= to_char((now() - interval '1 day') at time zone 'UTC', 'YYYY-MM-DD') end as suspect
      from page p
     cross join lateral (select count(*) as next_rows from pending q where q.task_id = p.id and q.kind = 'next') n
)
select id, suspect from counted
 where suspect or id = (select id from page order by id desc limit 1)
 order by id
