-- Record who did what, in the transaction that does it. $1 tenant, $2 actor, $3 action, $4 target, $5 detail (JSON text).
-- The id is a UUIDv7 of the database's clock, with the fraction of its millisecond in `rand_a` (RFC 9562, 6.2, method 3),
-- so that ids come in the order of time.
insert into audit (id, tenant_id, actor, action, target, detail)
select (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0')
        || substr(replace(gen_random_uuid()::text, '-', ''), 17))::uuid, $1, $2, $3, $4, $5::text::jsonb
  from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint) as clock (us)
