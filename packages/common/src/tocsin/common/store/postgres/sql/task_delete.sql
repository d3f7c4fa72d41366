-- Mark a locked task as deleted; its row stays for its history. $1 id. Index: tasks_pkey.
update tasks set state = 'deleted', version = version + 1, updated_at = clock_timestamp() where id = $1
