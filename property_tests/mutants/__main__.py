"""`python -m property_tests.mutants`: hunts every broken twin and prints the table of docs/mutants.md.

Exit code 1 where one was not caught; it is then named on standard error.
"""

import logging
import sys

from property_tests.mutant import hunt
from property_tests.registry import MUTANTS, servers_of

HEAD = """# Broken twins

Each takes one guard out of the product, by a patch that only the tests know, and its machine must see a promise broken.
`promise` is the one that the guard serves; another may be seen broken first. `examples` is how many programs it took
from the seed that `property_tests/tests/test_mutants.py` uses, discarded ones included. Written by
`uv run python -m property_tests.mutants > docs/mutants.md`.

| without its guard | machine | promise | examples |
|---|---|---|---|"""


def main() -> int:
    logging.disable(logging.CRITICAL)  # a broken twin complains of much
    missed = []
    print(HEAD)
    with servers_of({mutant.machine.__name__ for mutant in MUTANTS}):
        for mutant in MUTANTS:
            machine = mutant.machine.__name__
            caught = hunt(mutant)
            if caught is None or not caught.found.startswith("promise"):
                missed.append(f"{machine} does not notice that {mutant.name}")
                continue
            print(f"| {mutant.name} | {machine} | {mutant.promise} | {caught.examples} |", flush=True)
    for each in missed:
        print(each, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
