"""The hint machine on a real Redis that is flushed, killed, frozen, rolled back and filled with nonsense (promise 11).

Two worlds use it under one name, as two databases made from one backup would: each tells it of its own runs, and hears
of the other's.
"""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from property_tests.hint_worlds import HintWorld
from property_tests.hints import PERIODS, HintMachine
from property_tests.plan_drafts import Draft
from property_tests.world.redis import RedisOfWorlds
from tocsin.common.hints.null import NullHints
from tocsin.common.hints.port import HintIndex
from tocsin.common.hints.redis_index import RedisHints
from tocsin.common.store.memory.database import MemoryDatabase
from tocsin.engine.read_config import ReadConfig

WAIT = 0.03
"""Seconds for an answer: what is frozen takes as long each time."""

EVERY_ROUND = ReadConfig(hint_wait=WAIT, sweep_every=0.0)


class RedisHintMachine(HintMachine):
    """Everything is read in each round: whatever Redis does can make no difference."""

    def __init__(self) -> None:
        super().__init__()
        self.redis = RedisOfWorlds.here()
        self.made: list[RedisHints] = []
        self.kept: dict[bytes, bytes] = {}

    def teardown(self) -> None:
        self.redis.restore()
        for index in self.made:
            self.loop.run(index.close())
        super().teardown()

    @initialize()
    def start(self) -> None:
        self.redis.ask("FLUSHALL")
        self.worlds = [HintWorld("none", lambda _: NullHints())]
        self.worlds += [HintWorld(name, self._make, EVERY_ROUND) for name in ("in Redis", "in the same Redis")]
        for world in self.worlds:
            self.loop.run(world.start())
            for tenant, every in enumerate(PERIODS):
                self.loop.run(world.create(tenant, Draft(every, offset=4).plan(world.world.now)))

    def _make(self, database: MemoryDatabase) -> HintIndex:
        self.made.append(RedisHints(self.redis.url, "worlds", database.now, timeout=WAIT))
        return self.made[-1]

    @precondition(lambda self: self.redis.answers)
    @rule(how=st.sampled_from(["flushed", "killed", "killed and back", "frozen", "kept", "rolled back"]))
    def redis_is(self, how: str) -> None:
        match how:
            case "flushed":
                self.redis.ask("FLUSHALL")
            case "killed":
                self.redis.kill()
            case "killed and back":
                self.redis.kill()
                self.redis.restore()
            case "frozen":
                self.redis.freeze()
            case "kept":
                self.kept = self.redis.state()
            case _:
                self.redis.roll_back(self.kept)

    @precondition(lambda self: not self.redis.answers)
    @rule()
    def redis_is_back(self) -> None:
        self.redis.restore()

    @precondition(lambda self: self.redis.answers)
    @rule(what=st.sampled_from(["members", "strings", "another tenant's"]), text=st.sampled_from([b"x", bytes(16)]))
    def someone_writes_into_it(self, what: str, text: bytes) -> None:
        keys = sorted(self.redis.ask("KEYS", "*"))
        for key in keys:
            match what:
                case "members":
                    self.redis.ask("DEL", key)
                    self.redis.ask("ZADD", key, self.plain.world.now.timestamp() * 1000, text)
                case "strings":
                    self.redis.ask("SET", key, text)
                case _ if key != keys[0]:
                    self.redis.ask("COPY", keys[0], key, "REPLACE")
