"""A Django database backend that brings its own PostgreSQL.

It is used if `DATABASE_URL` is not set. Whichever process connects first (a command, the web server or the worker)
starts the server (`server.py`), and starts it again if it has died. Everything else is Django's PostgreSQL backend.
"""
