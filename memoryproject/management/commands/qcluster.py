"""`manage.py qcluster`: the workers of one host, and what queues scheduled tasks; in the place of django-q's command.

That one's workers share a lock, and one that is killed while it holds it stops the rest for ever (django-q2 issues 23
and 339). Here each is a process of its own, kept alive by this one and killed by the kernel when this one is gone.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections

from memoryproject import watch
from memoryproject.patience import Away, database
from memoryproject.process_tree import Child, Fork, Tree, apart, die_with_parent, end_as_by_ctrl_c
from memoryproject.site_state import note_restart
from memoryproject.telemetry import sending
from memoryproject.verification import refuse_newer
from moments_app import engines
from moments_app.jobs import worker
from sessions_app import lexemes

logger = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Run jobs and schedules until stopped."

    def handle(self, *args: Any, **options: Any) -> None:
        die_with_parent()
        end_as_by_ctrl_c()
        with suppress(Away), database():  # if the database is unreachable, wait for it as during operation
            refuse_newer()
        lexemes.load()  # once, for all workers
        engines.load()
        connections.close_all()  # none is shared by the forks
        number = settings.JOBS.workers
        workers: list[Child] = [Fork(f"Worker {n}", partial(_watched, worker.serve, n, number)) for n in range(number)]
        beside = [Fork("The scheduler", partial(_watched, worker.keep_time)), Fork("The watchdog", watch.serve)]
        tree = Tree([*beside, *workers], _tell)
        try:
            tree.start()
            tree.keep_until_asked()
        except KeyboardInterrupt:
            pass
        finally:
            tree.end()


def _watched(function: Callable[..., None], *arguments: int) -> None:
    """Call a function in a fork, where threads may be begun, and send what happens there to where settings say."""
    with sending("worker"):
        function(*arguments)


def _tell(sentence: str) -> None:
    logger.warning(sentence)
    apart(partial(note_restart, sentence, "qcluster"))
