-- Record a skip. $1 run_id, $2 tenant, $3 task, $4 first slot, $5 last slot, $6 the slot before, $7 count, $8 exact, $9 reason.
insert into history (run_id, tenant_id, task_id, ended_at, slot, until_slot, last_slot, skip_count, skip_exact, fence,
                     losses, sent, kind, state, outcome, reason)
values ($1, $2, $3, clock_timestamp(), $4, $5, $6, $7, $8, 0, 0, false, 'slot', 'skipped', 'skipped', $9)
