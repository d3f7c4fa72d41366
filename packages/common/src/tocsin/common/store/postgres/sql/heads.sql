-- Heads: the first rows of each queue that are due within the lead, in queue order.
--
-- $1 tenant_id, $2 priority, $3 from_due (null: now - $8 s; -infinity: from the start), $4 from_run (exclusive),
-- $5 lane_first, $6 lane_last (exclusive), $7 limit per queue; $8 margin s, $9 lead s. Returns pending rows.
--
-- Index: pending_queue, one range per queue, so neither another tenant's backlog nor dead rows before the bound cost
-- anything. The margin is longer than any writing transaction (rule 10).
-- The lanes are a filter: where a tenant has k shards, an owner of one walks the k - 1 others' rows. Measured with
-- 3 shards and 100,000 due: a page of 256 walks 824 rows, 1.26 against 1.17 ms; a shard that is drained beside 67,000
-- rows of the others 9 ms, in ten seconds once, and with each sweep while those are due within its margin. A fourth index would cost every run more than that.
select h.run_id, h.fence, h.tenant_id, h.task_id, h.priority, h.due_at, h.slot, h.last_slot, h.lane, h.kind,
       h.plan_version, h.losses
  from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::int[], $6::int[], $7::int[])
       as q (tenant_id, priority, from_due, from_run, lane_first, lane_last, count)
 cross join lateral (
    select *
      from pending p
     where p.tenant_id = q.tenant_id and p.priority = q.priority
       and (p.due_at, p.run_id) > (coalesce(q.from_due, now() - $8::float8 * interval '1 second'), q.from_run)
       and p.due_at <= now() + $9::float8 * interval '1 second'
       and p.lane >= q.lane_first and p.lane < q.lane_last
     order by p.due_at, p.run_id
     limit q.count
 ) h
