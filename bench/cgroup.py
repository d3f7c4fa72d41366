"""Control groups of our own, in whichever version of the kernel's interface the machine has mounted.

Linux' `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/`. A group lies at the root of what is mounted, which
only root may write, and is removed once its processes have ended.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Controller = Literal["cpu", "io"]

_V1_NAMES: dict[Controller, str] = {"cpu": "cpu", "io": "blkio"}
_PERIOD_US = 100_000


class UnavailableError(Exception):
    """This machine gives no control groups; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """Where a controller's groups lie, and which version (1 or 2) of the interface that is."""

    folder: Path
    version: int


def mounted(controller: Controller, mounts: str) -> Mounted:
    """Finds the controller in the text of `/proc/mounts`.

    Raises:
        UnavailableError: it is not mounted.
    """
    version_2: Path | None = None
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split(" ")
        if kind == "cgroup" and _V1_NAMES[controller] in options.split(","):
            return Mounted(Path(folder), 1)
        if kind == "cgroup2":
            version_2 = Path(folder)
    if version_2 is None:
        raise UnavailableError("no control groups are mounted")
    return Mounted(version_2, 2)


class Group:
    """One group with one controller. `name` must be new on this machine.

    Raises:
        UnavailableError: it cannot be made.
    """

    def __init__(self, controller: Controller, name: str, where: Mounted | None = None) -> None:
        try:
            if where is None:
                where = mounted(controller, Path("/proc/mounts").read_text())
            self.version = where.version
            if where.version == 2:
                _enable(controller, where.folder)
            self._folder = where.folder / name
            self._folder.mkdir()
        except OSError as error:
            raise UnavailableError(f"a control group cannot be made: {error}") from error

    def limit_cores(self, cores: float) -> None:
        """At most `cores` seconds of processor a second."""
        quota = round(cores * _PERIOD_US)
        if self.version == 2:
            self._write("cpu.max", f"{quota} {_PERIOD_US}")
        else:
            self._write("cpu.cfs_period_us", str(_PERIOD_US))
            self._write("cpu.cfs_quota_us", str(quota))

    def limit_writes(self, device: tuple[int, int], bytes_a_second: int, writes_a_second: int) -> None:
        """What may be written to a block device (major, minor)."""
        number = f"{device[0]}:{device[1]}"
        if self.version == 2:
            self._write("io.max", f"{number} wbps={bytes_a_second} wiops={writes_a_second}")
        else:
            self._write("blkio.throttle.write_bps_device", f"{number} {bytes_a_second}")
            self._write("blkio.throttle.write_iops_device", f"{number} {writes_a_second}")

    def add(self, pids: Iterable[int]) -> None:
        """Moves processes in; what they start later is in it too. One that has ended is passed over."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._write("cgroup.procs", str(pid))

    def throttled(self) -> tuple[int, float]:
        """Periods in which the group had to wait for its quota, and the seconds that it waited in them."""
        found = parse_stat((self._folder / "cpu.stat").read_text())
        seconds = found.get("throttled_usec", 0) / 1e6 + found.get("throttled_time", 0) / 1e9
        return found.get("nr_throttled", 0), seconds

    def remove(self) -> None:
        """Once its processes have ended."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def _write(self, name: str, text: str) -> None:
        # Not Path.write_text: an error must come from the one write, not from closing.
        descriptor = os.open(self._folder / name, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def parse_stat(text: str) -> dict[str, int]:
    """The numbers of a `cpu.stat`."""
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def _enable(controller: Controller, root: Path) -> None:
    if controller not in (root / "cgroup.controllers").read_text().split():
        raise UnavailableError(f"the controller {controller} is not in {root}")
    if controller not in (root / "cgroup.subtree_control").read_text().split():
        (root / "cgroup.subtree_control").write_text(f"+{controller}")
