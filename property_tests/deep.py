"""`python -m property_tests.deep`: every machine for as many steps as are asked for, from a seed.

A machine that is broken prints the smallest program that breaks it, as a script for `property_tests.replay`. The report
says how many steps and examples each machine made, and holds the program that broke it. It is written after each
portion, so that a run which is ended early says what was played until then.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from property_tests.machine import Machine, Profile, play
from property_tests.registry import MACHINES, servers_of
from property_tests.replay import program_of


@dataclass(frozen=True, slots=True)
class Played:
    """What became of one machine so far. `seed`: of its last portion, which is the one that broke it. `program`: what
    `property_tests.replay` plays; None where nothing was broken, or not by a program."""

    machine: str
    portions: int
    seed: int
    steps: int
    examples: int
    seconds: float
    broken: str | None
    program: str | None


def play_deep(name: str, machine: type[Machine], profile: Profile, steps: int, seed: int) -> Iterator[Played]:
    """Runs a machine in portions, each from the next seed, until it has made `steps` steps or is broken; says after
    each portion what it has made in all."""
    began = time.monotonic()
    first_steps, first_examples = Machine.steps[name], Machine.examples[name]
    broken, program, portions = None, None, 0
    while broken is None and Machine.steps[name] - first_steps < steps:
        try:
            play(machine, profile, seed + portions)
        except Exception as error:
            traceback.print_exc()
            broken = str(error) or type(error).__name__
            program = printed_program(error)
        portions += 1
        yield Played(
            name,
            portions,
            seed + portions - 1,
            Machine.steps[name] - first_steps,
            Machine.examples[name] - first_examples,
            round(time.monotonic() - began, 1),
            broken,
            program,
        )


def printed_program(error: Exception) -> str | None:
    """The program that is printed with an error; None where there is none."""
    try:
        return program_of("".join(traceback.format_exception(error)))
    except ValueError:
        return None


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, and 1 where a machine was broken."""
    options = _options(arguments)
    chosen = {name: MACHINES[name] for name in options.machine or MACHINES}
    weight = sum(share for _, _, share in chosen.values())
    asked = {"steps": options.steps, "seed": options.seed}
    played: dict[str, Played] = {}
    with servers_of(chosen):
        for name, (machine, profile, share) in chosen.items():
            print(f"{name} ...", flush=True)
            for so_far in play_deep(name, machine, profile, -(-options.steps * share // weight), options.seed):
                played[name] = so_far
                if options.report is not None:
                    write(options.report, list(played.values()), asked, finished=False)
    show(list(played.values()))
    if options.report is not None:
        write(options.report, list(played.values()), asked, finished=True)
    return 1 if any(one.broken for one in played.values()) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="property_tests.deep", description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000, help="over all machines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--machine", action="append", choices=sorted(MACHINES), help="only this one; may be repeated")
    parser.add_argument("--report", type=Path, help="a folder for deep.json")
    return parser.parse_args(arguments)


def show(played: Sequence[Played]) -> None:
    table = Table("machine", "steps", "examples", "seconds", "verdict")
    for one in played:
        table.add_row(one.machine, f"{one.steps:,}", f"{one.examples:,}", str(one.seconds), one.broken or "held")
    table.add_row("all", f"{sum(one.steps for one in played):,}", f"{sum(one.examples for one in played):,}", "", "")
    Console().print(table)


def write(folder: Path, played: Sequence[Played], asked: Mapping[str, int], *, finished: bool) -> None:
    """Writes deep.json, whole or not at all. `finished`: every machine has made its steps, or was broken."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {**asked, "finished": finished, "machines": [asdict(one) for one in played]}
    unfinished = folder / "deep.json.part"
    unfinished.write_text(json.dumps(document, indent=2) + "\n")
    unfinished.replace(folder / "deep.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
