"""Every broken twin is caught by its machine: a machine that can miss one proves nothing by holding."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from property_tests.mutant import Mutant, hunt
from property_tests.registry import MUTANTS, NEEDS_POSTGRES
from property_tests.world.backends import Server


@pytest.fixture(scope="module")
def server(open_tmp_path: Path) -> Iterator[Server]:
    with Server.running(open_tmp_path / "worlds of mutants") as running:
        yield running


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant, request: pytest.FixtureRequest) -> None:
    if mutant.machine.__name__ in NEEDS_POSTGRES:
        request.getfixturevalue("server")
    caught = hunt(mutant)
    assert caught is not None, f"{mutant.machine.__name__} does not notice that {mutant.name}"
    assert caught.found.startswith("promise"), caught.found
