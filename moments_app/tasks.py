"""What the queue calls. A task only names what to do; the rows decide."""

from moments_app.jobs import recovery as recover
from moments_app.jobs import runner as run
from moments_app.models import ContextReceipt
from moments_app.recall import count_words as counting
from moments_app.recall import embed as embedding
from moments_app.recall import index_words as indexing
from moments_app.reports import housekeeping as tidying
from moments_app.sessions import sweep as compaction
from moments_app.streams import form as formation


def run_job(job_id: str) -> None:
    """Runs a job if it is due and nobody else works on it."""
    run.run_job(job_id)


def recover_jobs() -> None:
    """Finds jobs that nobody works on and queues them again."""
    recover.recover_jobs()


def prune_receipts() -> None:
    """Deletes receipts of contexts that are old."""
    ContextReceipt.objects.expired().delete()


def housekeeping() -> None:
    """Deletes old records of work that nothing leads to."""
    tidying.housekeeping()


def form_memories() -> None:
    """Asks for the formation of sessions that have gone cold."""
    formation.sweep()


def compact_sessions() -> None:
    """Asks for the digest of busy sessions and the settling of quiet ones."""
    compaction.compact_sessions()


def count_words() -> None:
    """Asks for a count of the words of those whose sessions have grown."""
    counting.sweep()


def index_words() -> None:
    """Indexes texts whose words are not as this version makes them."""
    indexing.index_words()


def embed() -> None:
    """Tries again to embed what failed."""
    embedding.sweep()
