"""Transports: how one request goes over the wire."""
