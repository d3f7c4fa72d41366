"""Lets the test files here import what lies in `support`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
