"""`manage.py qcluster`: the workers of one host, and what queues scheduled tasks; in the place of django-q's command.

That one's workers share a lock, and one that is killed while it holds it stops the rest for ever (django-q2 issues 23
and 339). Here each is a process of its own, kept alive by this one and killed by the kernel when this one is gone.
"""

from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from django.core.management.base import BaseCommand

from memoryproject import forks
from memoryproject.patience import Away, database
from memoryproject.process_tree import Tree, apart, die_with_parent, end_as_by_ctrl_c
from memoryproject.site_state import note_restart
from memoryproject.verification import refuse_newer

logger = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Run jobs and schedules until stopped."

    def handle(self, *args: Any, **options: Any) -> None:
        die_with_parent()
        end_as_by_ctrl_c()
        with suppress(Away), database():  # if the database is unreachable, wait for it as during operation
            refuse_newer()
        forks.load()
        tree = Tree(forks.background(), _tell)
        try:
            tree.start()
            tree.keep_until_asked()
        except KeyboardInterrupt:
            pass
        finally:
            tree.end()


def _tell(sentence: str) -> None:
    logger.warning(sentence)
    apart(partial(note_restart, sentence, "qcluster"))
