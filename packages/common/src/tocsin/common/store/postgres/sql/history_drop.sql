-- Drop a table that was a partition. A script; name is put into its text.
drop table {name};
