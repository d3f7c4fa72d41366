"""Every measurement, in the order in which `all` runs them."""

from collections.abc import Mapping

from bench import (
    begin,
    completion,
    create,
    drill,
    fairness,
    heads,
    hints,
    p0,
    p1,
    p2,
    p3,
    p3b,
    p4,
    p5,
    p6,
    p7,
    p7b,
    p8,
    p9,
    p9b,
    p10,
    retention,
    scale,
    transport,
)
from bench.frame import Measurement
from bench.peers import measurement as peers

MEASUREMENTS: dict[str, Measurement] = {
    module.MEASUREMENT.name: module.MEASUREMENT
    for module in (
        *(p0, p1, p2, p3, p3b, p4, p5, p6, p7, p7b, p8, p9, p9b, p10),
        *(create, begin, heads, hints, completion, retention, fairness, scale, transport, peers, drill),
    )
}

OWN_NETWORK: Mapping[str, str] = {
    "p3b": "it has a rough network of its own",
    "p8": "it has a proxy of its own, which cuts",
    "drill": "it starts the product with the database beside it, as `tocsin up` does",
    "transport": "it has no database",
    "peers": "the peers reach their databases directly",
}
"""Those that `--network` would change nothing of, or not all, and why."""
