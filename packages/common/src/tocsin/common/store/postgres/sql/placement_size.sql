-- How many executors a cell shall have. $1 cell, $2 executors.
update placements set executors = $2 where cell = $1
