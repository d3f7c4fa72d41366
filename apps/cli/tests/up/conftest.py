"""One `up --demo` for all checks of a running one."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # pytest's importlib mode adds no folder itself

from up_process import UpProcess, nothing_left


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder with a blank in its name, open to every account."""
    folder = Path(tempfile.mkdtemp(prefix="up test "))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def demo(home: Path) -> Iterator[UpProcess]:
    """A running `up --demo`; the module's last test may end it."""
    data_dir = home / "data dir"
    with nothing_left(data_dir) as started:
        up = UpProcess(data_dir, "--demo", TOCSIN_EGRESS_ALLOW="10.1.2.3/32:80", RAY_ADDRESS="127.0.0.1:9")
        started.append(up)
        up.serving()
        yield up
