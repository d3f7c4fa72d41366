-- Expire: ends leases whose processes are proven gone, or that end by themselves. $1 lease ids. Returns (id).
update leases set expired_at = clock_timestamp() where id = any ($1) and expired_at is null returning id
