"""What has struck: a run's every way to its end is to be cut somewhere by somebody, and a test counts on it."""

from collections import Counter

STRUCK: Counter[tuple[str, str]] = Counter()
"""In all worlds of this process: a crash point or a statement, and how (the error's name, or the fault)."""
