-- Signing secrets by tenant. $1 tenant ids. Index: tenants_pkey.
select id, signing_secrets from tenants where id = any ($1)
