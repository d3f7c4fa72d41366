"""Tocsin's executor: how a tenant's endpoint is called."""
