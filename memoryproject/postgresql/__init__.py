"""Django's PostgreSQL backend, with fewer messages between a request and the database."""
