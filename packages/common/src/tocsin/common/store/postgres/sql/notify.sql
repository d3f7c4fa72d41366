-- Wake the owners of queues. $1 payload. Coalesced by the caller: a commit with a NOTIFY takes one instance-wide lock.
select pg_notify('tocsin', $1)
