"""What was withdrawn is made again of what is still believed: by the ordinary processes, whose jobs' params say what.

A job can fail and be tried again without bringing anything back. However many retractions there were, one job of a
process has what it is to make again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import QuerySet, Sum

from moments_app.models import Job, MemoryStream, Retraction
from moments_app.models.embedding import ask_to_embed
from moments_app.moments.build import AGAIN_TO, BuildMoments
from moments_app.recall.count_words import CountWords
from moments_app.streams.add_atoms import consolidate_if_due
from moments_app.streams.form import RANGES_AGAIN, FormMemories
from moments_app.summaries.roll import RollSummary
from sessions_app.models import Message, Session
from sessions_app.models.message import SequenceRange


@dataclass(frozen=True, eq=False)
class Remake:
    """A process that makes something again.

    Args:
        process: its name.
        param: the key under which its jobs' params say what is to be made again.
        nothing: what stands there when nothing is.
        merge: returns what two jobs would make again, for one.
    """

    process: str
    param: str
    nothing: Any
    merge: Callable[[Any, Any], Any]

    def besides(self, wanted: Any, params: Mapping[str, Any]) -> Any:
        """Return what is wanted, and what the params of a job say."""
        return self.merge(params.get(self.param, self.nothing), wanted)

    def ask(self, session: Session, wanted: Any, *, requested_by: str) -> None:
        """Ask for what is wanted, besides what waits to be made again already."""
        job = Job.objects.request_again(self.process, session=session, requested_by=requested_by)
        job.params[self.param] = self.besides(wanted, job.params)
        job.save(update_fields=["params"])

    def call_off(self, session: Session, *, requested_by: str) -> None:
        """Let go of what waits to be made again; a job that somebody else asked for runs without it."""
        job = Job.objects.take_back(self.process, session=session)
        if job and job.params.pop(self.param, None) is not None:
            job.force = job.force and job.requested_by != requested_by
            job.save(update_fields=["params", "force"])


def united(ranges: Iterable[SequenceRange]) -> list[SequenceRange]:
    """Return the ranges in order, without overlaps; single turns in a row are one range."""
    found: list[SequenceRange] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + (first == last):
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _ranges(waiting: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> list[SequenceRange]:
    return united((first, last) for first, last in (*waiting, *wanted))


MOMENTS = Remake(BuildMoments.name, AGAIN_TO, -1, max)  # the turn up to which there are to be moments
MEMORIES = Remake(FormMemories.name, RANGES_AGAIN, (), _ranges)
REMAKES = (MOMENTS, MEMORIES)


def waiting_remakes(session: Session) -> dict[str, Any]:
    """Return the params of the jobs that have to make something again still, by process."""
    waiting = Job.objects.open().filter(session=session, process__in=[remake.process for remake in REMAKES])
    return {job.process: job.params for job in waiting}


def roll_again(session: Session, *, requested_by: str) -> None:
    """Ask for the session's next summary, made of the last that is left."""
    Job.objects.request(RollSummary.name, session, requested_by=requested_by, due_now=True)


def refresh(retraction: Retraction, streams: QuerySet[MemoryStream]) -> None:
    """Ask for texts to be consolidated, words counted and vectors made, of the person and of these streams."""
    by = retraction.actor
    for stream in streams:
        consolidate_if_due(stream, requested_by=by)
        if stream.user_id is None:
            Job.objects.request(CountWords.name, stream=stream, requested_by=by, force=True)
            ask_to_embed(by, stream=stream)
    if retraction.user_id is not None:
        Job.objects.request(CountWords.name, user_id=retraction.user_id, requested_by=by, force=True)
        ask_to_embed(by, user_id=retraction.user_id)


# --- what it costs ---


def calls_for(turns: QuerySet[Message]) -> int:
    """Return about how many engine calls a build of these turns takes."""
    tokens: int = turns.believed().aggregate(total=Sum("tokens"))["total"] or 0  # type: ignore[attr-defined]
    return -(-tokens // settings.MOMENT_BUILDER.max_input_tokens)
