"""The crash matrix: every named crash point, failed in every way, in real processes under load.

`python -m property_tests.crash_matrix` runs the services as plain processes on one real PostgreSQL, strikes one fault
in each cell, and holds what the endpoint saw against what the database says.
"""
