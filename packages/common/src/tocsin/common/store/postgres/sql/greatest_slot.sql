-- The greatest slot that a task ever accounted for. $1 task. Asked only of a task that has no next row: one whose
-- schedule has ended. Indexes: pending_task, running_task, history_task.
select greatest(
    (select max(slot) from pending where task_id = $1),
    (select max(slot) from running where task_id = $1),
    (select max(greatest(slot, until_slot)) from history where task_id = $1)) as slot
