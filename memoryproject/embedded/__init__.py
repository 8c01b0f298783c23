"""A Django database backend that brings its own PostgreSQL.

Used when no `DATABASE_URL` is set: whichever process connects first, command, web server or worker, starts the server
(`server.py`), and starts it again should it have died. Everything else is Django's PostgreSQL backend.
"""
