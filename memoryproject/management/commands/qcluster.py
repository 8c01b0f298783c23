"""`manage.py qcluster`: the workers of one host, and what queues scheduled tasks; in the place of django-q's command.

That one's workers share a lock, and one that is killed while it holds it stops the rest for ever (django-q2 issues 23
and 339). Here each is a process of its own, kept alive by this one and killed by the kernel when this one is gone.
"""

from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections

from memoryproject.process_tree import Child, Fork, Tree, die_with_parent, end_as_by_ctrl_c
from moments_app.jobs import worker
from sessions_app import lexemes

logger = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Works off jobs and runs what is scheduled, until stopped."

    def handle(self, *args: Any, **options: Any) -> None:
        die_with_parent()
        end_as_by_ctrl_c()
        lexemes.load()  # once, for all workers
        connections.close_all()  # none is shared by the forks
        number = settings.JOBS.workers
        workers: list[Child] = [Fork(f"Worker {n}", partial(worker.serve, n, number)) for n in range(number)]
        tree = Tree([Fork("The clock", worker.keep_schedules), *workers], _tell)
        try:
            tree.start()
            tree.keep_until_asked()
        except KeyboardInterrupt:
            pass
        finally:
            tree.end()


def _tell(sentence: str) -> None:
    logger.warning(sentence)
