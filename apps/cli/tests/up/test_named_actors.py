"""B74: many ask at once for the same named actor: there is one, or an error in good time, and a dead name is free.

One Ray for all checks, with a database that nobody can reach.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tocsin.cli.up.ray_keeper import ray_environment, without_ray

SCRIPT = Path(__file__).parent / "support" / "named_actors.py"
ERRORS = {"ActorDiedError", "ActorUnavailableError", "RayActorError"}
SECONDS = 150.0

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Any]]:
    """What the script says; nothing of its Ray is left."""
    folder = Path(tempfile.mkdtemp(prefix="na-", dir="/tmp"))  # short: Ray makes sockets in it
    marker = str(folder / "failed")
    environment = {
        **without_ray(os.environ),
        **ray_environment(secrets.token_hex(16)),
        "TOCSIN_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
        "MARKER": marker,
    }
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder / "ray")], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        yield json.loads(output.splitlines()[-1])
    finally:
        marked = [p for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get("MARKER") == marker]
        for one in marked:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(marked, timeout=10)
        process.wait()
        shutil.rmtree(folder)


def test_b74_many_processes_that_ask_at_once_get_one_supervisor(found: dict[str, Any]) -> None:
    """Though the database is down, and it can do nothing yet: it answers."""
    assert len(found["processes"]) == 8
    assert len(set(found["processes"])) == 1
    assert not set(found["processes"]) & ERRORS


def test_b74_right_after_a_kill_there_is_one_new_supervisor_or_an_error(found: dict[str, Any]) -> None:
    kill = found["kill"]
    assert kill["new"] not in ERRORS | {kill["old"]}
    assert set(kill["found"]) <= ERRORS | {kill["new"]}


def test_b74_the_check_catches_one_who_looks_first_and_then_makes(found: dict[str, Any]) -> None:
    assert len(set(found["naive"])) > 1
    assert "ActorAlreadyExistsError" in found["naive"]


def test_b74_names_of_cells_do_not_collide_and_each_is_made_once(found: dict[str, Any]) -> None:
    started = found["cells"]["started"]
    names = {cell: f"executor/{cell}/1-0" for cell in ("tenant-a/b c", "A", "a")}
    assert {cell: set(names) for cell, names in started.items()} == {cell: {name} for cell, name in names.items()}
    assert sorted(found["cells"]["answers"]) == sorted(names.values())
    assert found["cells"]["running"] == {cell: [name] for cell, name in names.items()}


def test_b74_a_constructor_that_failed_is_an_error_in_good_time_and_its_name_is_free_again(
    found: dict[str, Any],
) -> None:
    (name, first), (again, second) = found["constructor"]["started"]
    assert name == again == "executor/bad/1-0"
    assert first in ERRORS
    assert second not in ERRORS


def test_a_frozen_executor_is_ended_with_its_process_and_no_other_is(found: dict[str, Any]) -> None:
    silence = found["silence"]
    assert silence["spared"] == []
    assert silence["names"] == ["executor/frozen/1-0", "executor/well/1-0", "executor/well/1-1"]
    assert silence["ended"] == ["executor/frozen/1-0"]
    assert silence["left"] == silence["names"][1:]
    assert silence["same"] == [True, True]
    assert silence["process gone"], "else it would come back, and take a lease beside the one in its place"


def test_another_comes_in_the_place_of_a_frozen_executor(found: dict[str, Any]) -> None:
    assert found["silence"]["again"] == "executor/frozen/1-0"
    assert found["silence"]["other"]


def test_b74_what_is_named_in_the_end(found: dict[str, Any]) -> None:
    cells = ["executor/A/1-0", "executor/a/1-0", "executor/bad/1-0", "executor/tenant-a/b c/1-0"]
    cells += ["executor/frozen/1-0", "executor/well/1-0", "executor/well/1-1"]
    assert found["named"] == sorted([*cells, "naive", "supervisor"])
