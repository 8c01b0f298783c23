"""Configuration of gunicorn: `gunicorn -c python:memoryproject.gunicorn_conf memoryproject.asgi`.

Several processes use several cores. How each handles its requests is described in `asgi.py`.
"""

import os

# Set before the settings are read, and only here: other programs that import the application must not pool connections.
os.environ["MEMORY_PROCESS"] = "web"

from memoryproject.settings import CONF

worker_class = "uvicorn_worker.UvicornWorker"
workers = CONF.web_workers
keepalive = 75  # seconds that an idle connection is kept, because clients append message after message
timeout = 60  # seconds without a heartbeat after which a worker is replaced
loglevel = CONF.log_level.lower()
control_socket_disable = True
