"""`count_words`: recount how often each word occurs in the memory of a person or a shard.

Recall uses the counts to weight the words of a query, and to correct mistyped words. A sweep queues the process when a
session has grown by a quarter, and code that adds facts queues it too. The process counts only if the whole memory has
grown by a tenth since the last count. So it reads each text about ten times in total, regardless of the size of memory.
"""

from dataclasses import dataclass

from django.db import connection
from django.db.models import F

from moments_app.jobs.process import ClaimLost, Lane, Process, ProcessInput, Progress, QueuedJobs, Skipped, Timing
from moments_app.models import Job, Vocabulary
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Session

GROWTH = 0.1  # minimum change since the last count, as a share of the texts
SWEEP = 500  # maximum people per run

# The same texts that recall can find. The conditions match those of the search functions in the migrations.
_TEXTS_SQL = """
WITH texts AS MATERIALIZED (
    SELECT 'fact' AS kind, search_vector AS words FROM moments_app_memoryatom
    WHERE user_id IS NOT DISTINCT FROM %(user)s AND (%(user)s IS NOT NULL OR stream_id = %(stream)s)
      AND state NOT IN ('evicted', 'line')
    UNION ALL SELECT 'moment', search_vector FROM moments_app_moment WHERE user_id = %(user)s
    UNION ALL SELECT 'turn', search_vector FROM sessions_app_message
    WHERE user_id = %(user)s AND kind <> 'partition' AND role <> 'system' AND retracted_at IS NULL
)"""
_SIZE_SQL = f"{_TEXTS_SQL} SELECT count(*) FROM texts"  # noqa: S608
_COUNT_SQL = f"""{_TEXTS_SQL}, counted AS MATERIALIZED (
    SELECT stem, count(*) FILTER (WHERE kind = 'fact') AS facts, count(*) FILTER (WHERE kind = 'moment') AS moments,
        count(*) FILTER (WHERE kind = 'turn') AS turns
    FROM texts, unnest(tsvector_to_array(words)) stem GROUP BY stem
), gone AS (
    DELETE FROM moments_app_word word WHERE vocabulary_id = %(vocabulary)s
    AND NOT EXISTS (SELECT FROM counted WHERE counted.stem = word.stem)
), sized AS (
    UPDATE moments_app_vocabulary SET counted_at = now(),
        (fact_count, fact_words, moment_count, moment_words, turn_count, turn_words) = (
            SELECT count(*) FILTER (WHERE kind = 'fact'), COALESCE(sum(length(words)) FILTER (WHERE kind = 'fact'), 0),
                count(*) FILTER (WHERE kind = 'moment'), COALESCE(sum(length(words)) FILTER (WHERE kind = 'moment'), 0),
                count(*) FILTER (WHERE kind = 'turn'), COALESCE(sum(length(words)) FILTER (WHERE kind = 'turn'), 0)
            FROM texts
        )
    WHERE id = %(vocabulary)s
)
INSERT INTO moments_app_word AS word (vocabulary_id, user_id, stem, facts, moments, turns)
SELECT %(vocabulary)s, %(user)s, stem, facts, moments, turns FROM counted
ON CONFLICT (vocabulary_id, stem) DO UPDATE
SET facts = excluded.facts, moments = excluded.moments, turns = excluded.turns
WHERE (word.facts, word.moments, word.turns) IS DISTINCT FROM (excluded.facts, excluded.moments, excluded.turns)
"""  # noqa: S608


@dataclass(frozen=True)
class CountInput(ProcessInput):
    """The primary key of the person or the shard whose words are counted."""

    user: int | None
    stream: int | None


class CountWords(Process[CountInput, None]):
    name = "count_words"
    title = "Count words"
    makes = "new words in searches"
    lane = Lane.INDEX
    is_upkeep = True
    sweep_timing = Timing(minutes=1)

    def claim(self, job: Job) -> CountInput | Skipped:
        """Skip the count if memory has hardly changed."""
        input = CountInput(None, job.user_id, job.stream_id if job.user_id is None else None)
        known = Vocabulary.objects.filter(user_id=input.user, stream_id=input.stream).first()
        before = known.fact_count + known.moment_count + known.turn_count if known else 0
        with connection.cursor() as cursor:
            cursor.execute(_SIZE_SQL, {"user": input.user, "stream": input.stream})
            [after] = cursor.fetchone() or [0]
        if not job.force and abs(after - before) < max(GROWTH * before, 1):
            _count_from_now(job.user_id)
            return Skipped("too few texts were added or removed since the last count")
        return input

    def think(self, input: CountInput, engine: None, progress: Progress) -> None:
        """Do nothing: this process has no engine."""

    def commit(self, job: Job, input: CountInput, answer: None) -> None:
        words = count(input).words.count()
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"words": words})

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue a word count for each person whose sessions have grown."""
        people = list(Session.objects.grown().order_by("user_id").values_list("user_id", flat=True).distinct()[:SWEEP])
        for user_id in () if dry_run else people:
            Job.objects.request(self.name, user_id=user_id, requested_by=self.name)
        return QueuedJobs(len(people))


def count(input: CountInput) -> Vocabulary:
    """Count and store the words, in the caller's transaction."""
    insert_if_missing(Vocabulary(user_id=input.user, stream_id=input.stream))
    vocabulary = Vocabulary.objects.select_for_update().get(user_id=input.user, stream_id=input.stream)
    _count_from_now(input.user)
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_SQL, {"user": input.user, "stream": input.stream, "vocabulary": vocabulary.pk})
    return vocabulary


def _count_from_now(user_id: int | None) -> None:
    """Record the current size of the person's sessions, so that only further growth queues the next count."""
    grown = Session.objects.filter(user_id=user_id, message_count__gt=F("counted_message_count"))
    grown.update(counted_message_count=F("message_count"))
