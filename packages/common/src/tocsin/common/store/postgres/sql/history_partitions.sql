-- The tables made as partitions of history for a day. Returns (name, attached): one that is not attached was about to be dropped.
select c.relname::text as name, i.inhrelid is not null as attached
  from pg_class c left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = 'history'::regclass
 where c.relnamespace = (select relnamespace from pg_class where oid = 'history'::regclass)
   and c.relkind = 'r' and c.relname ~ '^history_\d{8}$'
 order by c.relname
