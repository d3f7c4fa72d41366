"""One form of a log line for every process: time, level, logger, text."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(handler: logging.Handler | None = None) -> None:
    """Sends log lines of level INFO and above to `handler`; by default to standard error."""
    chosen = handler or logging.StreamHandler(sys.stderr)
    chosen.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[chosen], force=True)
