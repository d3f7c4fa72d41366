"""Whatever an endpoint answers, in whatever pieces and with whatever end: a call ends once, in time, without a trace.

`TOCSIN_TEST_FUZZ_EXAMPLES` sets how many sequences of exchanges are tried for each transport (default: 50).
"""

import asyncio
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import broken_lean
import broken_transports as broken
import endpoints
from answers import EXCHANGES, Exchange
from endpoints import TransportFactory
from exchanges import play
from transport_suite import TRANSPORTS

EXAMPLES = int(os.environ.get("TOCSIN_TEST_FUZZ_EXAMPLES", "50"))


def fuzz(make: TransportFactory, *, examples: int, known: bool = False) -> None:
    """Tries sequences by chance; `known`: the same ones each time, and without looking for the smallest that fails."""

    @settings(
        max_examples=examples,
        derandomize=known,
        phases=(Phase.generate,) if known else tuple(Phase),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(EXCHANGES)
    def tried(exchanges: list[Exchange]) -> None:
        runner.run(play(make, exchanges))

    with asyncio.Runner() as runner:
        tried()


@pytest.mark.timeout(60 + EXAMPLES)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_answer_harms_the_caller(transport: str) -> None:
    fuzz(TRANSPORTS[transport], examples=EXAMPLES)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    "make",
    [
        broken.TrustsThePool,
        broken_lean.Resends,
        broken_lean.CallsEveryEndStale,
        broken.TakesAnyEnd,
        broken.Resends,
        broken.HasNoDeadline,
        broken.ForgetsTheCap,
        broken.TakesInterimAnswers,
        broken.ForgetsSockets,
    ],
)
def test_a_broken_transport_is_caught(make: TransportFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE", 0.5)
    with pytest.raises(AssertionError):
        fuzz(make, examples=200, known=True)
