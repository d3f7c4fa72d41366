-- Detach a partition. A script; name is put into its text. (`concurrently` is refused beside a DEFAULT partition.)
alter table history detach partition {name};
