-- Claim an idempotency key within the create's transaction: a second one waits here for the first to end.
-- $1 tenant, $2 key, $3 request hash, $4 task. No row: the key is taken. Index: idempotency_keys_pkey.
insert into idempotency_keys (tenant_id, key, request_hash, task_id) values ($1, $2, $3, $4)
on conflict do nothing returning key
