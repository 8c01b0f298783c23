"""Rebuild withdrawn data from the remaining turns, with ordinary processes. Job params specify what to rebuild.

One job per process rebuilds everything, regardless of the number of retractions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import QuerySet, Sum

from moments_app.jobs.process import queue_embedding
from moments_app.models import Job, MemoryStream, Retraction
from moments_app.moments.build import REBUILD_TO, BuildMoments
from moments_app.recall.index_words import CountWords
from moments_app.streams.add_atoms import consolidate_if_due
from moments_app.streams.form import WITHDRAWN_RANGES, FormMemories
from moments_app.summaries import RollSummary
from sessions_app.models import Message, Session
from sessions_app.models.message import SequenceRange


@dataclass(frozen=True, eq=False)
class Rebuild:
    """A process that rebuilds data.

    Args:
        param: a key in the params of jobs. Its value specifies what to rebuild.
        default: the value if there is nothing to rebuild.
        merge: merges the values of two jobs.
    """

    process: str
    param: str
    default: Any
    merge: Callable[[Any, Any], Any]

    def merge_with(self, wanted: Any, params: Mapping[str, Any]) -> Any:
        """Return `wanted` merged with the value in the params of a job."""
        return self.merge(params.get(self.param, self.default), wanted)

    def queue(self, session: Session, wanted: Any, *, requested_by: str) -> None:
        """Queue a rebuild. Merge it with a rebuild that is already waiting."""
        job = Job.objects.request_fresh_run(self.process, session=session, requested_by=requested_by)
        job.params[self.param] = self.merge_with(wanted, job.params)
        job.save(update_fields=["params"])

    def cancel(self, session: Session, *, requested_by: str) -> None:
        """Cancel a waiting rebuild.

        If the job was also requested for other reasons, it still runs, without the rebuild.
        """
        job = Job.objects.requeue(self.process, session=session)
        if job and job.params.pop(self.param, None) is not None:
            job.force = job.force and job.requested_by != requested_by
            job.save(update_fields=["params", "force"])


def merge_ranges(ranges: Iterable[SequenceRange]) -> list[SequenceRange]:
    """Return the ranges in order, without overlaps. Consecutive single turns become one range."""
    found: list[SequenceRange] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + (first == last):
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _ranges(waiting: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> list[SequenceRange]:
    return merge_ranges((first, last) for first, last in (*waiting, *wanted))


MOMENTS = Rebuild(BuildMoments.name, REBUILD_TO, -1, max)  # the param is the last turn that moments must cover
MEMORIES = Rebuild(FormMemories.name, WITHDRAWN_RANGES, (), _ranges)
REBUILDS = (MOMENTS, MEMORIES)


def open_rebuilds(session: Session) -> dict[str, Any]:
    """Return the params of the session's open jobs that may rebuild data, keyed by process."""
    waiting = Job.objects.open().filter(session=session, process__in=[rebuild.process for rebuild in REBUILDS])
    return {job.process: job.params for job in waiting}


def request_summary(session: Session, *, requested_by: str) -> None:
    """Queue the session's next summary, based on the latest remaining one."""
    Job.objects.request(RollSummary.name, session, requested_by=requested_by, due_now=True)


def refresh(retraction: Retraction, streams: QuerySet[MemoryStream]) -> None:
    """Queue consolidations, word counts and embedding for the person and these streams."""
    by = retraction.actor
    for stream in streams:
        consolidate_if_due(stream, requested_by=by)
        if stream.user_id is None:
            Job.objects.request(CountWords.name, stream=stream, requested_by=by, force=True)
            queue_embedding(by, stream=stream)
    if retraction.user_id is not None:
        Job.objects.request(CountWords.name, user_id=retraction.user_id, requested_by=by, force=True)
        queue_embedding(by, user_id=retraction.user_id)


# --- what it costs ---


def calls_for(turns: QuerySet[Message]) -> int:
    """Return the approximate number of engine calls for a build of these turns."""
    tokens: int = turns.unretracted().aggregate(total=Sum("tokens"))["total"] or 0  # type: ignore[attr-defined]
    return -(-tokens // settings.MOMENT_BUILDER.max_input_tokens)
