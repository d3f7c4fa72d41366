-- Tenants whose move was asked for. Returns (id, shard, move_to). Index: tenants_move.
select id, shard, move_to from tenants where move_to is not null
