"""Limits are reported as applied only where they were seen to hold."""

from pathlib import Path

import pytest

from bench.cgroup import Group, Mounted, UnavailableError, mounted, parse_stat
from bench.quotas import Quotas, beside, took_effect
from bench.report import Report, at_most, exactly

V1 = """proc /proc proc rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev 0 0\n"


def test_a_burner_under_its_limit_and_throttled_is_held() -> None:
    assert took_effect(0.5, burnt=0.52, seconds=1.0, throttled=9)


@pytest.mark.parametrize(("burnt", "throttled"), [(0.98, 0), (0.98, 9), (0.4, 0)])
def test_one_that_burns_more_or_was_only_starved_is_not_held(burnt: float, throttled: int) -> None:
    assert not took_effect(0.5, burnt, 1.0, throttled)


def test_the_controller_is_found_in_either_version() -> None:
    assert mounted("cpu", V1) == Mounted(Path("/sys/fs/cgroup/cpu"), 1)
    assert mounted("io", V1) == Mounted(Path("/sys/fs/cgroup/blkio"), 1)
    assert mounted("cpu", V2) == Mounted(Path("/sys/fs/cgroup"), 2)
    with pytest.raises(UnavailableError):
        mounted("cpu", "proc /proc proc rw 0 0\n")


def test_throttling_is_read_in_either_version() -> None:
    assert parse_stat("nr_periods 10\nnr_throttled 4\nthrottled_time 500\n")["nr_throttled"] == 4


def a_version_2(folder: Path, controllers: str = "cpu io", enabled: str = "") -> Mounted:
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(enabled)
    return Mounted(folder, 2)


def test_version_2_is_given_its_own_files(tmp_path: Path) -> None:
    group = Group("cpu", "ours", a_version_2(tmp_path))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    for name in ("cpu.max", "io.max", "cpu.stat"):
        (tmp_path / "ours" / name).touch()  # the kernel makes them
    group.limit_cores(0.5)
    group.limit_writes((254, 0), 1000, 10)
    (tmp_path / "ours" / "cpu.stat").write_text("nr_throttled 3\nthrottled_usec 2000000\n")
    assert (tmp_path / "ours" / "cpu.max").read_text() == "50000 100000"
    assert (tmp_path / "ours" / "io.max").read_text() == "254:0 wbps=1000 wiops=10"
    assert group.throttled() == (3, 2.0)


def test_a_machine_without_them_says_why(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cpu is not in"):
        Group("cpu", "ours", a_version_2(tmp_path, controllers="memory"))
    with pytest.raises(UnavailableError, match="cannot be made"):
        Group("cpu", "ours", Mounted(tmp_path / "missing", 1))


def test_quotas_that_are_not_applied_limit_nothing() -> None:
    unlimited = Quotas("none", applied=False)
    unlimited.limit("executor", [1])
    assert unlimited.throttled() == {}


def test_under_quotas_speeds_lose_their_targets_and_losses_keep_theirs() -> None:
    report = Report("p1", {}, [exactly("lost", 0, 1), at_most("p99", 20, 300, "ms")], "", {"runs": 9})
    shown = beside(report)
    assert [target.name for target in shown.targets] == ["lost"]
    assert not shown.met
    assert shown.figures == {"p99": 300, "runs": 9}
