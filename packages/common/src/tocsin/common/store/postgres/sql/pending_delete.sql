-- Delete pending rows by id. $1 run ids. Returns those that were there. Index: pending_pkey.
delete from pending where run_id = any ($1) returning run_id
