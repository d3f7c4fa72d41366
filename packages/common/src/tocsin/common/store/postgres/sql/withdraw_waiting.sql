-- Withdraw the waiting runs of a locked task. $1 task, $2 reason. Returns (run_id). Indexes: pending_task, pending_pkey.
-- Locked in run_id order, as whatever locks several rows of pending does.
with waiting as materialized (
    select run_id from pending where task_id = $1 and kind <> 'next' order by run_id for update
),
gone as (
    delete from pending where run_id = any (array(select run_id from waiting)) returning *
)
insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, until_slot, last_slot, skip_count, skip_exact,
                     fence, losses, sent, kind, state, outcome, reason)
select run_id, tenant_id, task_id, clock_timestamp(), due_at, slot, slot, last_slot, 1, true, fence, losses, false, kind,
       'skipped', 'skipped', $2
  from gone
returning run_id
