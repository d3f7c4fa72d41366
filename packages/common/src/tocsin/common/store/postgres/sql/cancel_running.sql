-- Mark a running run of a locked task as cancelled; its completion writes the state. $1 run. Returns (run_id). Index: running_pkey.
update running set cancelled = true where run_id = $1 returning run_id
