"""`count_words`: how often each word stands in a person's memory, or in a shard's, is counted again.

Recall weighs the words of a query by these counts, and finds in them what a mistyped word may have meant. A sweep asks
for it where a session has grown by a quarter, and so does whoever adds facts; it does its work only when all of that
memory has grown by a tenth since the last count. So each text is read some ten times in all, however
much there is.
"""

from dataclasses import dataclass

from django.db import connection
from django.db.models import F

from moments_app.jobs.process import Asked, ClaimLost, Lane, Process, ProcessInput, Progress, Skipped, Timing
from moments_app.models import Job, Vocabulary
from sessions_app.insert import insert_unless_there
from sessions_app.models import Session

GROWTH = 0.1  # of all memory: less is not counted again
SWEEP = 500  # people a run

# What recall can find, as it finds it: see the conditions in the migrations.
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
    """The owner of the words that are counted, by primary key: a person, or a shard."""

    user: int | None
    stream: int | None


class CountWords(Process[CountInput, None]):
    """Counts the words of a person's memory, or of a shard's."""

    name = "count_words"
    title = "Count words"
    makes = "new words in searches"
    lane = Lane.INDEX
    is_upkeep = True
    sweep_timing = Timing(minutes=1)

    def claim(self, job: Job) -> CountInput | Skipped:
        """Look whether there is enough that is new."""
        input = CountInput(None, job.user_id, job.stream_id if job.user_id is None else None)
        known = Vocabulary.objects.filter(user_id=input.user, stream_id=input.stream).first()
        before = known.fact_count + known.moment_count + known.turn_count if known else 0
        with connection.cursor() as cursor:
            cursor.execute(_SIZE_SQL, {"user": input.user, "stream": input.stream})
            [after] = cursor.fetchone() or [0]
        if not job.force and abs(after - before) < max(GROWTH * before, 1):
            _count_from_now(job.user_id)
            return Skipped("memory has hardly changed since the last count")
        return input

    def think(self, input: CountInput, engine: None, progress: Progress) -> None:
        """There is nobody to ask."""

    def commit(self, job: Job, input: CountInput, answer: None) -> None:
        """Count, and complete the job."""
        words = count(input).words.count()
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"words": words})

    def sweep(self, *, dry_run: bool = False) -> Asked:
        """Ask for a count of the words of those whose sessions have grown."""
        people = list(Session.objects.grown().order_by("user_id").values_list("user_id", flat=True).distinct()[:SWEEP])
        for user_id in () if dry_run else people:
            Job.objects.request(self.name, user_id=user_id, requested_by=self.name)
        return Asked(len(people))


def count(input: CountInput) -> Vocabulary:
    """Count the words, in the caller's transaction."""
    insert_unless_there(Vocabulary(user_id=input.user, stream_id=input.stream))
    vocabulary = Vocabulary.objects.select_for_update().get(user_id=input.user, stream_id=input.stream)
    _count_from_now(input.user)
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_SQL, {"user": input.user, "stream": input.stream, "vocabulary": vocabulary.pk})
    return vocabulary


def _count_from_now(user_id: int | None) -> None:
    """Have the sessions of a person grow again before the words are counted again."""
    grown = Session.objects.filter(user_id=user_id, message_count__gt=F("counted_message_count"))
    grown.update(counted_message_count=F("message_count"))
