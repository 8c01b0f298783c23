"""`manage.py qcluster`: run the workers of one host, and queue scheduled tasks. Replaces django-q's command.

Workers of django-q share a lock. If a worker is killed while it holds the lock, all others stop forever (django-q2
issues 23 and 339). Here, this process restarts each worker, and the kernel kills the workers if this process dies.
"""

from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from django.core.management.base import BaseCommand

from memoryproject import forks
from memoryproject.database.timeouts import DatabaseUnavailable, database
from memoryproject.database.verification import refuse_other_versions
from memoryproject.process_tree import Tree, die_with_parent, run_detached, treat_sigterm_as_ctrl_c
from memoryproject.status.site_state import record_restart

logger = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Run jobs and schedules until stopped."

    def handle(self, *args: Any, **options: Any) -> None:
        die_with_parent()
        treat_sigterm_as_ctrl_c()
        # Start even if the database is unreachable. The workers then wait for it.
        with suppress(DatabaseUnavailable), database():
            refuse_other_versions()
        forks.load()
        tree = Tree(forks.background(), _report_death)
        try:
            tree.start()
            tree.run_until_interrupted()
        except KeyboardInterrupt:
            pass
        finally:
            tree.stop()


def _report_death(sentence: str) -> None:
    logger.warning(sentence)
    run_detached(partial(record_restart, sentence, "qcluster"))
