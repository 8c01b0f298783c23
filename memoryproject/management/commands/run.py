"""`manage.py run`: run everything on one machine, as `make run` does."""

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from memoryproject import embeddings, forks
from memoryproject.database import embedded
from memoryproject.database.verification import refuse_failed_checks
from memoryproject.demo import Demonstration, StepFailed, open_url
from memoryproject.process_tree import (
    CannotStart,
    DirectoryLocked,
    Fork,
    Tree,
    die_with_parent,
    lock_directory,
    mark_in_use,
    run_detached,
    run_in_fork,
    treat_sigterm_as_ctrl_c,
)
from memoryproject.status import checks
from memoryproject.status.site_state import record_restart
from sessions_app.models import ApiKey, UserProfile

OPERATOR = "operator"
MANAGE = ".venv/bin/python manage.py" if (settings.BASE_DIR / "manage.py").exists() else "memory-platform"
LOCK_TIMEOUT = 5  # maximum seconds to wait until a killed run has closed its database
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 (only if the operator sets it)


class Command(BaseCommand):
    help = "Prepare the database and start the web server and workers. On a new site, show a demonstration first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help=f"address to listen on; {ANY_ADDRESS} is every address")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--no-demo", action="store_true", help="skip the demonstration on a new site")

    def handle(self, *args: Any, **options: Any) -> None:
        die_with_parent()  # has an effect only if a drill started this process
        treat_sigterm_as_ctrl_c()
        try:
            with lock_directory(settings.DATA_DIR, patience=LOCK_TIMEOUT):
                _check_port(options["host"], options["port"])
                self._run(options["host"], options["port"], with_demonstration=not options["no_demo"])
        except DirectoryLocked as error:
            raise CommandError(
                f"{error} If the platform is running, use it, or stop it with Ctrl-C in its terminal. To run a second "
                "one, choose another folder and port: DATA_DIR=.data2 make run PORT=8001."
            ) from error
        except CannotStart as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:  # Ctrl-C before any process was started
            self._say("Stopped.")

    def _run(self, host: str, port: int, *, with_demonstration: bool) -> None:
        base_url = f"http://{'127.0.0.1' if host == ANY_ADDRESS else host}:{port}"
        with _database():
            is_first = settings.DATABASE_IS_EMBEDDED and not settings.EMBEDDED_DATABASE_DIR.exists()
            self._say(f"Preparing the database{'. The first start takes about half a minute' if is_first else ''} …")
            password, is_new = run_in_fork(self._prepare)
            checks.mark_schema_current()
            with mark_in_use(settings.DATA_DIR) as left:
                self._report_crash(left)
                self._warn_without_embeddings()
                forks.load_web()
                forks.load()
                tree = Tree(_children(host, port), self._report_death)
                self._serve(base_url, tree, password, with_demonstration=with_demonstration and is_new)

    def _prepare(self) -> tuple[str, bool]:
        """Migrate, and create a login if there is none. Return its password, and whether the site is new."""
        try:
            call_command("migrate", verbosity=0)
            refuse_failed_checks()
            return self._ensure_operator(), not UserProfile.objects.exists()
        except KeyboardInterrupt:
            _stop_database()  # the parent can't stop it, because it may be dead
            raise

    def _serve(self, base_url: str, tree: Tree, password: str, *, with_demonstration: bool) -> None:
        try:
            self._say("Starting the web server and the workers …")
            tree.start()
            _wait_until_ready(base_url, tree)
            if with_demonstration:
                self._demonstrate(base_url)
            self._say_where(base_url, password)
            tree.run_until_interrupted()
        except KeyboardInterrupt:
            self._say("Stopping.")
        finally:
            tree.stop()

    def _warn_without_embeddings(self) -> None:
        if not settings.EMBEDDING.is_on and not embeddings.is_packaged():
            self._say(
                f"Searches use words only, because the extra `{embeddings.EXTRA}` is not installed (docs/engines.md)."
            )

    def _report_crash(self, left: str) -> None:
        """Report that the previous run was killed, in the same way as a child's death."""
        if left:
            sentence = f"All processes stopped when {left} exited. They are being restarted."
            self._say(sentence)
            record_restart(sentence, "run")

    @transaction.atomic
    def _ensure_operator(self) -> str:
        """Create a login for the admin if there is none, and return its password, or a blank string.

        The password is printed before the commit, so a killed process never leaves a login with an unknown password.
        """
        operators = get_user_model().objects
        if operators.filter(is_superuser=True).exists():
            return ""
        password = secrets.token_urlsafe(12)
        operators.create_superuser(OPERATOR, password=password)
        self._say(f"Your login for the admin: {OPERATOR}, password {password}")
        return password

    def _demonstrate(self, base_url: str) -> None:
        """Show the demonstration. If a step fails, report it in one line, and keep the site running."""
        self._say("\nDemonstration: an application stores a conversation, and gets memory back.")
        try:
            with _key_of_demonstration() as key:
                Demonstration(base_url, key, self._say).run()
        except StepFailed as error:
            self._say(f"The demonstration stopped early: {error}")
        except DatabaseError as error:
            self._say(f"The demonstration stopped early: the database does not respond ({type(error).__name__}).")
        finally:
            connection.close()

    def _say_where(self, base_url: str, password: str) -> None:
        login = f" Log in as {OPERATOR}, password {password} (not shown again)." if password else ""
        self._say(
            f"\nThe platform is running.\n"
            f"Admin          {base_url}/admin/{login}\n"
            f"New password   {MANAGE} changepassword {OPERATOR}\n"
            f"API reference  {base_url}/api/v1/docs\n"
            f"New API key    {MANAGE} create_api_key my-app\n"
            f"To stop the platform, press Ctrl-C."
        )

    def _say(self, text: str) -> None:
        """Print a text and flush it. If the output is a file or a pipe, the text would otherwise stay in a buffer."""
        self.stdout.write(text)
        self.stdout.flush()

    def _report_death(self, sentence: str) -> None:
        self._say(sentence)
        run_detached(partial(record_restart, sentence, "run"))


@contextmanager
def _key_of_demonstration() -> Iterator[str]:
    """Issue a key that expires in an hour, and delete it when the block ends."""
    hour = timezone.now() + timedelta(hours=1)
    key, text = ApiKey.objects.issue("demonstration", scope=ApiKey.Scope.WRITE, expires_at=hour)
    try:
        yield text
    finally:
        with transaction.atomic():  # lock the key first, because a request may be updating its usage
            for locked in ApiKey.objects.select_for_update().filter(pk=key.pk):
                locked.delete()


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", error)
            raise CommandError(
                f"Can't listen on {host}, port {port} ({reason}). Choose another port: make run PORT=8001, or "
                "manage.py run --port 8001."
            ) from error


@contextmanager
def _database() -> Iterator[None]:
    try:
        yield
    finally:
        _stop_database()


def _stop_database() -> None:
    connection.close()
    if settings.DATABASE_IS_EMBEDDED:
        embedded.stop(settings.EMBEDDED_DATABASE_DIR)


def _children(host: str, port: int) -> list[Fork]:
    children = [*forks.background(stops_database=settings.DATABASE_IS_EMBEDDED), forks.web_server(host, port)]
    if settings.EMBEDDING.is_embedded:
        children.insert(0, forks.embeddings_server())
    return children


def _wait_until_ready(base_url: str, tree: Tree) -> None:
    """Wait without a time limit, because slow machines start slowly. Raise `CannotStart` if a child has ended."""
    while True:
        tree.check_started()
        try:
            with open_url(f"{base_url}/healthz", timeout=5):
                return
        except OSError:  # not listening yet, or too busy to respond in time
            time.sleep(0.1)
