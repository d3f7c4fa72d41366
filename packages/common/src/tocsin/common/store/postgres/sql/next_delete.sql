-- Delete a next row by its id (rule 2). $1 run id. Returns it if it was there. Index: pending_pkey.
-- What was begun since it was found may be back already, under the same id, to be tried again: no next row any more.
delete from pending where run_id = $1 and kind = 'next' returning run_id
