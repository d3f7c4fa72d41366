"""Other schedulers and queues at the same work: see `measurement.py` for what is measured, `catalogue.py` for whom."""
