"""Tocsin's shared ground: words, time, the store, telemetry."""
