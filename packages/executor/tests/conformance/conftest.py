"""Lets the test files here import the suite; pytest's importlib mode adds no folder itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
