-- Who holds an idempotency key. $1 tenant, $2 key. Index: idempotency_keys_pkey.
select request_hash, task_id from idempotency_keys where tenant_id = $1 and key = $2
