"""What two published benches found, by test: facts that stand beside our figures, never targets of ours.

`CRON` is the bench that P0 to P9 repeat: a multi-tenant cron platform in Go on MySQL 8.4 (runtime/rants,
"Load-testing a distributed job scheduler on an AWS-shaped bench"). 12 CPUs in one machine, each service held to
0.5 vCPU and the database to 2 vCPU, +1.17 ms a query. All but the job creation was measured before its author's fix.
`INDEX` is the bench of a Redis index beside a scan: Rust on PostgreSQL 17 ("A distributed job scheduler, part 3:
measuring before scaling"), four cores, one claimer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.report import plain_name

CRON = "Go on MySQL"
INDEX = "Rust on PostgreSQL"


@dataclass(frozen=True, slots=True)
class SeedFigure:
    """`question`: what the test asks. `source`: whose figure `found` is; empty where none was published. `parts`: what
    was found, by what a target's name has in it, small letters; the first that fits counts."""

    question: str
    source: str = ""
    found: str = ""
    met: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


_NOTHING_LOST = {"lost": "0", "duplicate": "0", "called again": "0"}

SEED_FIGURES: Mapping[str, SeedFigure] = {
    "p0": SeedFigure(
        "Is the rig itself good enough?", CRON, "3,000 of 3,000 calls, p99 0.21 s", "yes", {"p99": "0.21 s"}
    ),
    "p1": SeedFigure(
        "Does a small load run at all, on time?",
        CRON,
        "400 jobs, no duplicates, p99 0.24 s",
        "yes",
        {"p99": "0.24 s", **_NOTHING_LOST},
    ),
    "p2": SeedFigure(
        "What rate does the whole system sustain?",
        CRON,
        "about 300 jobs/s, with 1, 2 or 3 executors",
        "",
        {"p99": "0.81 s at 200/s", "rate": "about 300/s", "sustained": "about 300/s"},
    ),
    "p3": SeedFigure(
        "Is a normal day on time, its five-minute marks too?",
        CRON,
        "p99 below 0.9 s on ordinary seconds; 6.7 s at the five-minute mark (5,005 due)",
        "no",
        {"mark": "6.7 s", "ordinary": "< 0.9 s", "lost": "0"},
    ),
    "p3b": SeedFigure("And with jitter and a long tail on the way to the database?"),
    "p4": SeedFigure(
        "30,000 due at 09:00:00: how long until all are called, and do the urgent ones go first?",
        CRON,
        "30,007 jobs in 94.1 s; p99 91.6 s for critical ones as for all",
        "no",
        {"critical": "91.6 s", "high": "91.6 s", "started": "94.1 s", "lost": "0", "duplicate": "1"},
    ),
    "p5": SeedFigure(
        "Slow endpoints: does a timeout shorter than the work repeat the work?",
        CRON,
        "30 s timeout: 4,800 of 4,800, p99 0.53 s; 20 s: 618 dead, 4,326 calls given up that the endpoint finished",
        "with a fitting timeout",
        {"30 s": "4,800 of 4,800", "dead": "618", "given up": "4,326", "lost": "0"},
    ),
    "p6": SeedFigure(
        "One large tenant hangs: what do the others feel?",
        CRON,
        "others' p99 +13 % (7.56 s beside 6.67 s)",
        "yes",
        {"others": "+13 %", "lost": "0"},
    ),
    "p7": SeedFigure(
        "An executor is killed: what is lost, what is called twice?",
        CRON,
        "0 lost, 0 duplicates (the kill fell between bursts)",
        "yes",
        _NOTHING_LOST,
    ),
    "p7b": SeedFigure("And killed in the middle of a burst?"),
    "p8": SeedFigure(
        "The database is cut off for 30 s: what is lost, how late is the latest?",
        CRON,
        "0 lost, 16 duplicates, the worst start 40 s late",
        "yes",
        {"worst": "40 s", "lost": "0", "duplicate": "16", "called again": "16"},
    ),
    "p9": SeedFigure(
        "Over time: does it slow down or grow?",
        CRON,
        "30 min: p99 6 to 9 s in each 5 minutes, no trend, memory flat",
        "yes",
        {"trend": "none in 30 min", "slope": "none in 30 min", "rss": "flat", "memory": "flat", "lost": "0"},
    ),
    "p9b": SeedFigure("And on a disk that is slow?"),
    "p10": SeedFigure("Thousands of host names over TLS, all due at once?"),
    "begin": SeedFigure(
        "How fast do due tasks become runs?",
        CRON,
        "job creation alone, after the author's fix: 24,760/s (before: 2,634/s); 18,360/s at +1 ms",
        "",
        {"begin + plant beside few": "24,760/s", "begin + plant, the database 1 ms away": "18,360/s"},
    ),
    "begin-az": SeedFigure(
        "How fast do due tasks become runs, with the database 1 ms away?",
        CRON,
        "job creation alone, after the author's fix: 18,360/s (before: 182/s)",
        "",
        {"begin + plant beside few": "18,360/s"},
    ),
    "hints": SeedFigure(
        "Is an index of due runs in Redis faster than asking the database?",
        INDEX,
        "claim only, one claimer: scan about 19,700 runs/s, Redis about 15,500 (21 % slower)",
        "",
    ),
    "heads": SeedFigure("Does finding due runs cost more beside a neighbour's backlog?"),
    "create": SeedFigure("How many tasks a second can tenants create?"),
    "completion": SeedFigure("How fast do results become history?"),
    "retention": SeedFigure("What does it cost to forget old history?"),
    "fairness": SeedFigure("Does sharing among tenants cost more as the backlog grows?"),
    "scale": SeedFigure("Do a million idle tasks slow the ones that are due?"),
    "transport": SeedFigure("Which HTTP client calls endpoints fastest?"),
    "peers": SeedFigure("How fast is the same work with other job queues?"),
    "drill": SeedFigure("Each fault of production, once: what is lost, and how long does it last?"),
}


def seed_figure(test: str) -> SeedFigure | None:
    """Of a test by its name, however it was run."""
    return SEED_FIGURES.get(test) or SEED_FIGURES.get(plain_name(test))


def found_for(test: str, target: str) -> str:
    """What the seed found for a target of this name; empty where it published nothing that fits."""
    seed = seed_figure(test)
    if seed is None:
        return ""
    name = target.lower()
    return next((found for words, found in seed.parts.items() if words in name), "")
