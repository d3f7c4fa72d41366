"""`tocsin up`: everything on one machine, as children of one process."""
