"""The table of arcs: complete, true to the SQL, and the source of the chart in the docs."""

from importlib import resources
from itertools import product
from pathlib import Path

import pytest

from tocsin.common import states
from tocsin.common.states import ARCS, TERMINAL, Arc, RunState, allowed, mermaid

CHART = Path(__file__).parents[3] / "docs" / "states.md"
BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"


def statements() -> set[str]:
    folder = resources.files("tocsin.common.store.postgres") / "sql"
    return {entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql")}


@pytest.mark.parametrize("arc", ARCS, ids=lambda arc: arc.name)
def test_every_arc_names_a_statement_that_exists(arc: Arc) -> None:
    assert arc.statement in statements()
    assert arc.actor in {"owner", "executor", "api"}
    assert arc.why


def test_arcs_have_names_of_their_own() -> None:
    assert len({arc.name for arc in ARCS}) == len(ARCS)


def test_no_arc_leads_out_of_a_terminal_state() -> None:
    """Promise 5."""
    assert {RunState.PENDING, RunState.RUNNING} | TERMINAL == set(RunState)
    assert not any(allowed(source, target) for source, target in product(TERMINAL, RunState))


def test_every_terminal_state_is_reached() -> None:
    assert {arc.target for arc in ARCS} == set(RunState)


def test_only_a_begin_leads_to_running() -> None:
    assert [arc.name for arc in ARCS if arc.target is RunState.RUNNING] == ["begin"]
    assert not allowed(RunState.RUNNING, RunState.SKIPPED)


def test_what_leaves_running_is_fenced() -> None:
    """Promise 4."""
    assert all(arc.fenced for arc in ARCS if arc.source is RunState.RUNNING)


def chart_of_the_docs() -> str:
    text = CHART.read_text()
    between = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    return between.strip().removeprefix("```mermaid\n").removesuffix("```")


def test_the_chart_in_the_docs_is_the_tables() -> None:
    """After a change: `uv run python -m tocsin.common.states`, and put its output between the marks."""
    assert chart_of_the_docs() == mermaid()


def test_the_check_catches_an_arc_that_the_docs_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "ARCS", ARCS[:-1])
    assert chart_of_the_docs() != mermaid()
