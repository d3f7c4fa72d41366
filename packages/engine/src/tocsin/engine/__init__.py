"""Tocsin's engine: what to run, and when."""
