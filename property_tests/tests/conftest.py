"""What needs a Redis is left out where none can be had; `.ci/run` then says NOT RUN of it."""

from tocsin.cli.redis_server import program

collect_ignore = [] if program() else ["test_redis_hints_machine.py"]
