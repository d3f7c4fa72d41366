"""`python -m property_tests.deep`: every machine for as many steps as are asked for, from a seed.

A machine that is broken prints the smallest program that breaks it, as a script for `property_tests.replay`. The report
says how many steps and examples each machine made.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from property_tests.machine import Machine, Profile, play
from property_tests.registry import MACHINES, servers_of


@dataclass(frozen=True, slots=True)
class Played:
    """What became of one machine."""

    machine: str
    steps: int
    examples: int
    seconds: float
    broken: str | None


def play_deep(name: str, machine: type[Machine], profile: Profile, steps: int, seed: int) -> Played:
    """Runs a machine in portions, each from the next seed, until it has made `steps` steps or is broken."""
    began = time.monotonic()
    first_steps, first_examples = Machine.steps[name], Machine.examples[name]
    broken = None
    while broken is None and Machine.steps[name] - first_steps < steps:
        try:
            play(machine, profile, seed)
        except Exception as error:
            traceback.print_exc()
            broken = str(error) or type(error).__name__
        seed += 1
    return Played(
        name,
        Machine.steps[name] - first_steps,
        Machine.examples[name] - first_examples,
        round(time.monotonic() - began, 1),
        broken,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="property_tests.deep", description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000, help="over all machines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--machine", action="append", choices=sorted(MACHINES), help="only this one; may be repeated")
    parser.add_argument("--report", type=Path, help="a folder for deep.json")
    options = parser.parse_args(arguments)
    chosen = {name: MACHINES[name] for name in options.machine or MACHINES}
    weight = sum(share for _, _, share in chosen.values())
    played = []
    with servers_of(chosen):
        for name, (machine, profile, share) in chosen.items():
            print(f"{name} ...", flush=True)
            played.append(play_deep(name, machine, profile, options.steps * share // weight, options.seed))
    show(played)
    if options.report is not None:
        write(options.report, played, {"steps": options.steps, "seed": options.seed})
    return 1 if any(one.broken for one in played) else 0


def show(played: Sequence[Played]) -> None:
    table = Table("machine", "steps", "examples", "seconds", "verdict")
    for one in played:
        table.add_row(one.machine, f"{one.steps:,}", f"{one.examples:,}", str(one.seconds), one.broken or "held")
    table.add_row("all", f"{sum(one.steps for one in played):,}", f"{sum(one.examples for one in played):,}", "", "")
    Console().print(table)


def write(folder: Path, played: Sequence[Played], options: Mapping[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {**options, "machines": [asdict(one) for one in played]}
    (folder / "deep.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
