"""`python -m property_tests.chaos`."""

import sys

from property_tests.chaos.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
