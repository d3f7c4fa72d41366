"""`python -m property_tests.crash_matrix`."""

import sys

from property_tests.crash_matrix.command import main

sys.exit(main(sys.argv[1:]))
