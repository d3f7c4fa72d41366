"""The checks of `.ci/run`, each with a seeded error that it must catch.

First every check runs on a copy of the tree into which one error of its kind was put, and must fail there; then it
runs on the tree itself, and must pass. A check that cannot be had on this machine prints NOT RUN, with the reason.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("packages/*/src"), *ROOT.glob("apps/*/src")])
TYPED = ["packages", "apps", "bench", "property_tests", "conftest.py", ".ci/checks.py"]
LONGEST_FILE = 450
LONGER = {"uv.lock"}
MOST_SECONDS = 1200
"""What one check may take."""

CLEAN_UP_SECONDS = 60

Seed = Callable[[Path], None]


class OverdueError(Exception):
    """A check has not ended in its time: that is a failure of its own, also on the tree with the seeded error."""


@dataclass(frozen=True)
class Check:
    """`seed` puts an error into a copy of the tree. `missing` says why the check cannot run here, or None."""

    name: str
    run: Callable[[Path], int]
    seed: Seed | None
    missing: Callable[[], str | None] = field(default=lambda: None)


def command(*args: str, **environment: str) -> Callable[[Path], int]:
    def run(tree: Path) -> int:
        env = {
            **os.environ,
            **environment,
            "PYTHONPATH": os.pathsep.join(str(tree / source) for source in SOURCES),
        }
        process = subprocess.Popen(args, cwd=tree, env=env, start_new_session=True)
        try:
            return process.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            raise OverdueError(f"{shlex.join(args)} did not end within {MOST_SECONDS} s") from None
        finally:
            end(process)

    return run


def end(process: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C does, so that tests clean up; after a minute whatever is left of it and all that it has started."""
    if process.poll() is not None:
        return
    itself = psutil.Process(process.pid)
    started = itself.children(recursive=True)  # servers among them have sessions of their own
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(CLEAN_UP_SECONDS)
    if process.poll() is None:
        started += itself.children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for each in started:
        with contextlib.suppress(psutil.Error):
            each.kill()


def written(path: str, text: str) -> Seed:
    def seed(tree: Path) -> None:
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    return seed


def appended(path: str, text: str) -> Seed:
    def seed(tree: Path) -> None:
        target = tree / path
        target.write_text(target.read_text() + text)

    return seed


def tracked(tree: Path) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    known = {name for name in names if name}
    seeded = {str(p.relative_to(tree)) for p in tree.rglob("*.py") if "src" in p.parts} if tree != ROOT else set()
    return [tree / name for name in sorted(known | seeded) if (tree / name).is_file()]


def namespace(tree: Path) -> int:
    stray = list(tree.glob("*/*/src/tocsin/__init__.py"))
    for path in stray:
        print(f"{path.relative_to(tree)}: tocsin is a namespace package; this file hides its other parts")
    return len(stray)


def sizes(tree: Path) -> int:
    long = 0
    for path in tracked(tree):
        if path.suffix == ".py" and path.name not in LONGER:
            lines = len(path.read_text().splitlines())
            if lines > LONGEST_FILE:
                print(f"{path.relative_to(tree)}: {lines} lines; what reads well has about 400")
                long += 1
    return long


def unwanted() -> re.Pattern[str]:
    """Where this checkout lies, whose home it is in, and the hosts that the lock file names."""
    hosts = set(re.findall(r"https?://([^/\"]+)", (ROOT / "uv.lock").read_text()))
    return re.compile("|".join(map(re.escape, [f"{ROOT}/", f"{Path.home()}/", *sorted(hosts)])))


def words(tree: Path) -> int:
    """No path of one machine and no registry's host name stands in the repository, but for the lock file."""
    found = 0
    pattern = unwanted()
    for path in tracked(tree):
        if path.name == "uv.lock" or path.suffix in {".png", ".svg", ".gif"}:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line):
                print(f"{path.relative_to(tree)}:{number}: a path or host name of one machine")
                found += 1
    return found


def postgres(major: int) -> Check:
    """The store's conformance suite on another major version of PostgreSQL."""

    def missing() -> str | None:
        return None if _bin_dir(major) else f"no PostgreSQL {major} can be had on this machine"

    def run(tree: Path) -> int:
        bin_dir = _bin_dir(major)
        assert bin_dir is not None
        return command(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "packages/common/tests/store",
            TOCSIN_TEST_POSTGRES_BIN=bin_dir,
        )(tree)

    return Check(f"store on PostgreSQL {major}", run, None, missing)


def _bin_dir(major: int) -> str | None:
    if major == 15 and not Path("/usr/lib/postgresql/15/bin/postgres").exists() and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "postgresql-15"], check=False, capture_output=True)
    script = f"from tocsin.cli.postgres import binaries; print(binaries({major}))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def redis() -> Check:
    """What of the suites needs a Redis, which `tests` leaves out where there is none."""

    def missing() -> str | None:
        script = "from tocsin.cli.redis_server import program; raise SystemExit(program() is None)"
        if subprocess.run([sys.executable, "-c", script], check=False).returncode and shutil.which("apt-get"):
            subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
            subprocess.run(["apt-get", "install", "-y", "-qq", "redis-server"], check=False, capture_output=True)
        found = subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
        return None if found else "no redis-server can be had on this machine"

    return Check("hints on Redis", command(sys.executable, "-m", "pytest", "-q", *ON_REDIS), None, missing)


ON_REDIS = (
    "packages/common/tests/hints/test_redis_hints.py",
    "apps/cli/tests/redis",
    "bench/tests/test_hint_measures.py",
    "property_tests/tests/test_redis_hints_machine.py",
)

# lint-imports, with the tree's own sources in the place of the installed ones
IMPORT_LINTER = """
import os, sys
own = os.environ["PYTHONPATH"].split(os.pathsep)
sys.path[:] = [path for path in sys.path if path in own or not path.endswith("/src")]
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True, no_logo=True))
"""

FAILING_TEST = "def test_seeded() -> None:\n    assert False\n"
WARNING_TEST = 'import warnings\n\n\ndef test_seeded() -> None:\n    warnings.warn("seeded", stacklevel=1)\n'
HANGING_TEST = """
import contextlib
import time


def test_seeded() -> None:
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)
"""
STUBBORN_TEST = """
import asyncio
import contextlib


async def test_seeded() -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    await asyncio.create_task(stubborn())
"""
SHORT_LIMITS = ("-n", "1", "-o", "timeout=1", "-o", "faulthandler_timeout=3")

CHECKS: Sequence[Check] = (
    Check(
        "lock",
        command("uv", "lock", "--check", "--quiet"),
        appended("packages/common/pyproject.toml", "# \n[dependency-groups]\nseeded = ['six']\n"),
    ),
    Check(
        "format",
        command("ruff", "format", "--check", "--quiet", "."),
        appended("packages/common/src/tocsin/common/ids.py", "\nx = {  'a':1 }\n"),
    ),
    Check(
        "lint",
        command("ruff", "check", "--quiet", "."),
        appended("packages/common/src/tocsin/common/ids.py", "\nimport time\n\nNOW = time.time()\n"),
    ),
    Check(
        "types",
        command("mypy", *TYPED),
        appended("packages/engine/src/tocsin/engine/plan.py", '\nSEEDED: int = "text"\n'),
    ),
    Check(
        "contracts",
        command(sys.executable, "-c", IMPORT_LINTER),
        appended("packages/engine/src/tocsin/engine/plan.py", "\nimport tocsin.executor.classify  # noqa\n"),
    ),
    Check("namespace", namespace, written("packages/common/src/tocsin/__init__.py", "")),
    Check("sizes", sizes, written("packages/common/src/tocsin/common/seeded.py", "X = 1\n" * (LONGEST_FILE + 1))),
    Check("words", words, written("packages/common/src/tocsin/common/seeded.py", f"# {ROOT}/x\n")),
    Check(
        "tests fail",
        command(sys.executable, "-m", "pytest", "-q", "packages/common/tests/test_seeded.py"),
        written("packages/common/tests/test_seeded.py", FAILING_TEST),
    ),
    Check(
        "tests warn",
        command(sys.executable, "-m", "pytest", "-q", "packages/common/tests/test_seeded.py"),
        written("packages/common/tests/test_seeded.py", WARNING_TEST),
    ),
    Check(
        "tests hang",
        command(sys.executable, "-m", "pytest", "-q", *SHORT_LIMITS, "packages/common/tests/test_seeded.py"),
        written("packages/common/tests/test_seeded.py", HANGING_TEST),
    ),
    Check(
        "tests hang at their end",
        command(sys.executable, "-m", "pytest", "-q", *SHORT_LIMITS, "packages/common/tests/test_seeded.py"),
        written("packages/common/tests/test_seeded.py", STUBBORN_TEST),
    ),
    redis(),  # first, since it installs what `tests` then has
    Check("tests", command("uv", "run", "--no-sync", "pytest", "-q"), None),
    Check("faults", command("uv", "run", "--no-sync", "pytest", "-q", "-m", "chaos", "property_tests/tests"), None),
    Check("bench", command("uv", "run", "--no-sync", "pytest", "-q", "-m", "bench", "bench/tests"), None),
    postgres(15),
    postgres(16),
    postgres(17),
)
SEED_ONLY = {"tests fail", "tests warn", "tests hang", "tests hang at their end"}


def copy_of_tree(into: Path) -> Path:
    tree = into / "tree"
    for path in tracked(ROOT):
        target = tree / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return tree


def catches(check: Check) -> bool:
    """Whether the check fails on a tree with an error of its kind."""
    assert check.seed is not None
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_tree(Path(folder))
        check.seed(tree)
        quiet = os.dup(1)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            try:
                return check.run(tree) != 0
            finally:
                os.dup2(quiet, 1)
                os.close(quiet)


def main(names: Sequence[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that what runs is ended
    failed = []
    for check in CHECKS:
        if names and check.name not in names:
            continue
        started = time.monotonic()
        print(f"== {check.name}", flush=True)
        if (reason := check.missing()) is not None:
            print(f"NOT RUN: {reason}")
            continue
        try:
            if check.seed is not None and not catches(check):
                print(f"FAILED: {check.name} did not catch its seeded error")
                failed.append(check.name)
            if check.name not in SEED_ONLY and check.run(ROOT) != 0:
                failed.append(check.name)
        except OverdueError as error:
            print(f"FAILED: {error}")
            failed.append(check.name)
        print(f"-- {check.name}: {time.monotonic() - started:.0f} s", flush=True)
    print(f"FAILED: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
