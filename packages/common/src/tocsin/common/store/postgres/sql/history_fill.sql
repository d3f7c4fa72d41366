-- Fill: a day's table, with what DEFAULT holds of that day. A script; name, first and end are put into its text.
-- The first lock makes keepers wait for each other and lets all others go on; the second keeps rows of that day from
-- coming in after the move, which would make the attaching fail for ever. Its last command's tag counts the rows moved.
lock table only history in share update exclusive mode;
lock table history_default in access exclusive mode;
create table {name} (like history including all);
with stray as (delete from history_default where ended_at >= '{first}' and ended_at < '{end}' returning *)
insert into {name} select * from stray;
