"""Measurements of the whole product on one machine: `uv run python -m bench list`."""
