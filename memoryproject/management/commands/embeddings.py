"""`manage.py embeddings`: serve the embedded model to other hosts, which set `EMBEDDING__BASE_URL`."""

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    help = "Serve embeddings with the OpenAI protocol, without a key. Only your own hosts should reach the port."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8001)

    def handle(self, *args: Any, **options: Any) -> None:
        """Replace this process, because the server needs neither Django nor a database."""
        command = [sys.executable, "-m", "memoryproject.embeddings", "--host", options["host"]]
        command += ["--port", str(options["port"])]
        if folder := settings.EMBEDDING.model_folder:
            command += ["--model-folder", folder]
        self.stdout.write(f"Serving embeddings at http://{options['host']}:{options['port']}/v1")
        self.stdout.flush()
        os.execv(sys.executable, command)  # noqa: S606 (our own program)
