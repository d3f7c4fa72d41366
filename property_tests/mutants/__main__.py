"""`python -m property_tests.mutants`: hunts every broken twin and prints docs/mutants.md.

Exit code 1 where one was not caught; it is then named on standard error.
"""

import logging
import sys

from property_tests.mutant import Caught, Mutant, hunt, why_missed
from property_tests.registry import MUTANTS, servers_of

HEAD = """# Broken twins

Each takes one guard out of the product, by a patch that only the tests know, and its machine must see a promise broken:
`promise`, the one that the guard serves, or another, for the few that are named below the table. `seen` is what was
seen broken; there a machine stops, and others may be broken too. `examples` is how many programs it took from the seed
that `property_tests/tests/test_mutants.py` uses, discarded ones included. Written by
`uv run python -m property_tests.mutants > docs/mutants.md`.

| without its guard | machine | promise | seen | examples |
|---|---|---|---|---|"""


EXCEPTIONS = ["Another promise may be seen broken first where", ""]
EXCEPTIONS += [
    f"- {each.name}: promise {each.instead.promise}, {each.instead.reason}" for each in MUTANTS if each.instead
]


def row_of(mutant: Mutant, caught: Caught) -> str:
    seen = ", ".join(map(str, sorted(caught.seen)))
    return f"| {mutant.name} | {mutant.machine.__name__} | {mutant.promise} | {seen} | {caught.examples} |"


def main() -> int:
    logging.disable(logging.CRITICAL)  # a broken twin complains of much
    missed = []
    print(HEAD)
    with servers_of({mutant.machine.__name__ for mutant in MUTANTS}):
        for mutant in MUTANTS:
            caught = hunt(mutant)
            if (why := why_missed(mutant, caught)) is not None:
                missed.append(why)
            elif caught is not None:
                print(row_of(mutant, caught), flush=True)
    print("\n" + "\n".join(EXCEPTIONS))
    for each in missed:
        print(each, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
