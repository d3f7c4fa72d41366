"""The store in memory, for tests: the same ports, the same rules, and a clock that a test can hold."""
