"""Tocsin's HTTP API."""
