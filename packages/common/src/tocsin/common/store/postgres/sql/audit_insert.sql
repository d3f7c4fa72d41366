-- Record who did what. $1 id, $2 tenant, $3 actor, $4 action, $5 target, $6 detail (JSON text).
insert into audit (id, tenant_id, actor, action, target, detail) values ($1, $2, $3, $4, $5, $6::text::jsonb)
