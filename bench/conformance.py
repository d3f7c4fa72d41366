"""`python -m bench.conformance CLIENT`: the transport conformance suite on one of the compared transports.

A process of its own: a client with threads may leave some behind in a check that it fails. Prints a JSON object: each
check by name, with what was wrong, or nothing.
"""

import asyncio
import json
import os
import sys
import traceback
import warnings
from collections.abc import Collection

from bench.clients import CLIENTS
from bench.endpoint import ROOT

SUITE = ROOT / "packages/executor/tests/conformance/support"
CHECK_SECONDS = 30.0
PATIENCE_SECONDS = 1.0
"""How long a check waits for a signal that a failing transport never gives."""


async def run_suite(client: str) -> dict[str, str]:
    """What was wrong, by check; nothing where it passed. A client that ends the process is wrong in one line."""
    command = (sys.executable, "-m", "bench.conformance", client)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await process.communicate()
    if process.returncode:
        return {"the suite": f"its process ended with {process.returncode}"}
    found: dict[str, str] = json.loads(output)
    return found


def run_checks(client: str, names: Collection[str] | None = None) -> dict[str, str]:
    """Every check of the suite, or those of `names`, each on an event loop of its own."""
    if str(SUITE) not in sys.path:
        sys.path.insert(0, str(SUITE))
    from transport_suite import CHECKS

    found = {}
    for name, check in CHECKS.items():
        if names is None or name in names:
            try:
                asyncio.run(asyncio.wait_for(check(CLIENTS[client]), CHECK_SECONDS))
                found[name] = ""
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                found[name] = f"{type(error).__name__}: {str(error) or place.line}".splitlines()[0][:200]
    return found


def main(client: str) -> None:
    """Prints what `run_checks` found, with less patience than the tests have, and ends the process."""
    sys.path.insert(0, str(SUITE))
    import endpoints

    endpoints.PATIENCE = PATIENCE_SECONDS
    warnings.simplefilter("ignore")
    print(json.dumps(run_checks(client)), flush=True)
    os._exit(0)  # threads of a client have been seen to abort a Python that ends


if __name__ == "__main__":
    main(sys.argv[1])
