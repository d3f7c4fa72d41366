"""A peer for the driver's tests: `scripted_peer.py MANNER COMMAND ...` keeps the adapters' protocol, each manner
breaking it in one way. It calls as soon as it works, whatever the due instant, so that no test waits for one."""

import http.client
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

KEPT = Path(os.environ["SCRIPT_FOLDER"]) / "jobs"


def call(number: int, due: float) -> None:
    url = urlsplit(os.environ["PEER_URL"])
    name = str(UUID(int=number + 1))
    due_at = datetime.fromtimestamp(due, UTC).isoformat()
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    connection.putrequest("POST", url.path)
    for header, value in (("Idempotency-Key", name), ("Tocsin-Task", name), ("Tocsin-Scheduled-For", due_at)):
        connection.putheader(header, value)
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    connection.getresponse().read()
    connection.close()


def work(manner: str) -> None:
    if manner == "never-ready":
        time.sleep(600)
    if manner == "dies-at-once":
        sys.exit("no server")
    print("a line before", flush=True)
    print("ready", flush=True)
    if manner == "leaves-a-child":
        held = os.open(KEPT.parent / "held", os.O_RDWR)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=(held,))
        os.close(held)
    count, _, due, warm = KEPT.read_text().split()
    for number in range(int(count), int(count) + int(warm) - (manner == "stays-cold")):
        call(number, float(due))
    for number in range(int(count)):
        if manner == "crashes" and number == 2:
            sys.exit("it broke")
        if manner == "loses" and number == 1:
            continue
        call(number, float(due))
        if manner == "doubles" and number == 0:
            call(number, float(due))
    time.sleep(600)


def main(manner: str, command: str, *rest: str) -> None:
    if command == "work":
        work(manner)
    elif command == "enqueue":
        if manner == "cannot-enqueue":
            sys.exit("no room")
        KEPT.write_text(" ".join(rest))
    elif command == "results":
        count, _, _, warm = KEPT.read_text().split()
        print("none" if manner == "keeps-none" else int(count) + int(warm))


if __name__ == "__main__":
    main(*sys.argv[1:])
