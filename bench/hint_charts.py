"""What `bench hints` found, as two tables and their plots."""

from collections.abc import Iterable, Sequence

from bench.series import Cell, Charts, Line, Number, Series, Table

READS = ("tenants", "backlog", "executors", "pinned", "scan, ms", "hints, ms", "scan, us a row", "hints, us a row")
RIVAL = ("claimers", "pinned", "scan, rows/s", "ids from Redis, rows/s")

Row = Sequence[float | bool]


def hint_charts(reads: Sequence[Row], rival: Sequence[Row]) -> Charts:
    """`reads` and `rival` have the columns above; the reads are drawn over the tenants, for each number of executors,
    at the largest backlog."""
    largest = max((row[1] for row in reads), default=0)
    at_largest = [row for row in reads if row[1] == largest]
    plots = [
        Series(
            f"A read of the heads, {executors:,} executors, backlog {largest:,}",
            "ms",
            *_lines([[row[0], *row[3:6]] for row in at_largest if row[2] == executors], ("scan", "hints")),
            x_unit="tenants",
            log=True,
            x_log=True,
        )
        for executors in dict.fromkeys(row[2] for row in at_largest)
    ]
    claims = _lines(rival, ("scan", "ids from Redis"))
    plots.append(
        Series(
            "The other shape: claims from one index range", "rows/s", *claims, x_unit="claimers", log=True, x_log=True
        )
    )
    tables = [Table("Reads of the heads", READS, _cells(reads)), Table("The other shape", RIVAL, _cells(rival))]
    return Charts(series=plots, tables=tables)


def _lines(rows: Sequence[Row], ways: tuple[str, str]) -> tuple[list[float], list[Line]]:
    """Of rows (x, pinned, first way, second way): x, and a line for each way without and with an old transaction."""
    x = sorted({row[0] for row in rows})
    values = {(row[0], bool(row[1])): row[2:4] for row in rows}

    def line(pinned: bool, way: int) -> list[Number]:
        return [values[at, pinned][way] if (at, pinned) in values else None for at in x]

    names = [
        (f"{name}, old transaction" if pinned else name, pinned, way)
        for way, name in enumerate(ways)
        for pinned in (False, True)
    ]
    return x, [Line(name, line(pinned, way)) for name, pinned, way in names]


def _cells(rows: Iterable[Row]) -> list[list[Cell]]:
    return [list(row) for row in rows]
