"""The egress setting, read before anything starts that would fail by it later."""

from tocsin.common.errors import TocsinError
from tocsin.executor.egress import EgressPolicy


def read_egress(setting: str) -> EgressPolicy:
    """The policy that `TOCSIN_EGRESS_ALLOW` asks for.

    Raises:
        TocsinError: one sentence with the entry that cannot be read.
    """
    try:
        return EgressPolicy.parse(setting)
    except ValueError as error:
        raise TocsinError(str(error)) from error
