-- Forget idempotency keys older than $1 s. Index: idempotency_keys_age.
delete from idempotency_keys where created_at < now() - $1::float8 * interval '1 second' returning key
