-- Record who did what, in the transaction that does it. $1 tenant, $2 actor, $3 action, $4 target, $5 detail (JSON text).
-- The id is a UUIDv7 of the database's clock, so that ids come in the order of time.
insert into audit (id, tenant_id, actor, action, target, detail)
values ((lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
         || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid, $1, $2, $3, $4, $5::text::jsonb)
