"""A Django database backend that brings its own PostgreSQL.

It is used if `DATABASE_URL` is not set. The first process that connects (a command, the web server or a worker)
starts the server (`server.py`), and restarts it if it has died. Everything else is Django's PostgreSQL backend.
"""
