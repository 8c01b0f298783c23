"""`manage.py run`: run everything on one machine, as `make run` does."""

import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from memoryproject.demo import Demonstration
from memoryproject.embedded import server
from sessions_app.models import ApiKey

START_TIMEOUT = 60  # seconds
STOP_TIMEOUT = 30


class Command(BaseCommand):
    help = "Prepare the database, start web server and worker, show the demonstration, and serve until stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--no-demo", action="store_true", help="only serve, without the demonstration")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, _stop)
        base_url = f"http://127.0.0.1:{options['port']}"
        call_command("migrate", verbosity=0)
        self._ensure_operator()
        children: list[subprocess.Popen[bytes]] = []
        try:
            children += _start(options["port"])
            _wait_until_ready(base_url, children)
            if not options["no_demo"]:
                self._demonstrate(base_url)
            self._say_where(base_url)
            self._serve(children)
        except KeyboardInterrupt:
            self._say("Stopping.")
        finally:
            _end(children)

    def _ensure_operator(self) -> None:
        """Create a login for the admin if there is none, and print its password, only this once."""
        operators = get_user_model().objects
        if not operators.filter(is_superuser=True).exists():
            password = secrets.token_urlsafe(12)
            operators.create_superuser("operator", password=password)
            self._say(f"Operator login for the admin, shown this once: operator / {password}")

    def _demonstrate(self, base_url: str) -> None:
        self._say("\nThe demonstration: a conversation goes in through the API, memory comes back")
        hour = timezone.now() + timedelta(hours=1)
        key, text = ApiKey.objects.issue("demonstration", scope=ApiKey.Scope.WRITE, expires_at=hour)
        try:
            Demonstration(base_url, text, self._say).run()
        finally:
            key.delete()
            connection.close()

    def _say_where(self, base_url: str) -> None:
        self._say(
            f"\nAdmin     {base_url}/admin/\nAPI docs  {base_url}/api/v1/docs\nHealth    {base_url}/readyz\n"
            "A key     manage.py create_api_key NAME\nStop      Ctrl-C"
        )

    def _say(self, text: str) -> None:
        """Print a text and flush it. In a file or pipe it would otherwise stay in a buffer while the site serves."""
        self.stdout.write(text)
        self.stdout.flush()

    def _serve(self, children: list[subprocess.Popen[bytes]]) -> None:
        while all(child.poll() is None for child in children):
            time.sleep(1)
        ended = next(child for child in children if child.poll() is not None)
        raise CommandError(f"{_name(ended)} ended with status {ended.returncode}; stopping.")


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt


def _start(port: int) -> list[subprocess.Popen[bytes]]:
    gunicorn = ["-m", "gunicorn", "-c", "python:memoryproject.gunicorn_conf", "--bind", f"127.0.0.1:{port}"]
    commands = [[*gunicorn, "memoryproject.asgi"], ["manage.py", "qcluster"]]
    environment = {"LOG_FORMAT": "console", "LOG_LEVEL": "WARNING", **os.environ}
    # In sessions of their own, so that Ctrl-C reaches only this process, which then ends them in order.
    return [
        subprocess.Popen([sys.executable, *command], cwd=settings.BASE_DIR, env=environment, start_new_session=True)  # noqa: S603
        for command in commands
    ]


def _wait_until_ready(base_url: str, children: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        for child in children:
            if child.poll() is not None:
                raise CommandError(f"{_name(child)} did not start (status {child.returncode}).")
        try:
            with urllib.request.urlopen(f"{base_url}/healthz", timeout=5):  # noqa: S310 (our own site)
                return
        except OSError:  # not there yet, or too busy to answer in time
            time.sleep(0.1)
    raise CommandError(f"The site did not answer at {base_url} within {START_TIMEOUT} s.")


def _name(child: subprocess.Popen[bytes]) -> str:
    return "The worker" if "qcluster" in child.args else "The web server"  # type: ignore[operator]


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
    connection.close()
    if "embedded" in settings.DATABASES["default"]["ENGINE"]:
        server.stop(settings.EMBEDDED_DATABASE_DIR)
