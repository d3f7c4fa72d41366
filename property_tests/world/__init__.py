"""A world in one thread: processes as event loops, time that stands until it is moved, a database that can be lost."""
