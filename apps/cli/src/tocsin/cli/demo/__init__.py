"""`tocsin up --demo`: a tenant, an endpoint, some telling tasks, and what became of their calls."""
