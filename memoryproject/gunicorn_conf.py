"""How gunicorn serves the site: `gunicorn -c python:memoryproject.gunicorn_conf memoryproject.asgi`.

Several processes use several cores; what each does with its requests stands in `asgi.py`.
"""

import os

# Said before the settings are read, and here alone: what imports the application for another end doesn't pool.
os.environ["MEMORY_PROCESS"] = "web"

from memoryproject.settings import CONF

worker_class = "uvicorn_worker.UvicornWorker"
workers = CONF.web_workers
keepalive = 75  # seconds an idle connection is kept: clients append message after message
timeout = 60  # seconds without a sign of life after which a worker is replaced
loglevel = CONF.log_level.lower()
control_socket_disable = True
