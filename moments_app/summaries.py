"""`roll_summary`: update the summary of a session's latest window with the turns since the last version.

When a round ends and there are enough new turns, the next version is added with the status `processing`, together with
its job. The engine receives only the previous text and the new turns, so the cost of a version doesn't grow with the
session.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import structlog
from django.conf import settings
from django.db.models import Case, Exists, F, FloatField, OuterRef, Q, Sum, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Ceil, Floor, Least
from django.utils import timezone

from moments_app.engines import EXTRACTIVE, EngineFactory, engine_name, language_model
from moments_app.engines.calls.texts import Fact, SummaryAnswer, SummaryRequest
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    CorrectionState,
    InputChanged,
    Lane,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Workload,
    active_prompt,
    check_corrections,
    complete,
    correction_state,
    locked_session,
    session_of,
    tokens_of,
)
from moments_app.models import ContextReceipt, Job, PromptResource, PromptVersion, Summary
from moments_app.models.job import DueRun
from moments_app.models.summary import PROCESS, WINDOW
from moments_app.prompts import ROLLING_SUMMARY_URI
from moments_app.turns.engine_input import end_of_round, engine_turn
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.models import Message, Session
from sessions_app.models.message import SequenceRange
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.retention.read_archived import MISSING, with_readable_text

# The number of new turns after which a summary is due even if no context was requested since the last summary.
# `UNREAD_TURNS` applies to language models, whose calls cost money. `FREE_TURNS` applies to the extractive engine; it
# is the length of a window, so windows leave no gap.
UNREAD_TURNS, FREE_TURNS = 48, WINDOW
PROMPT_TOKENS = 550  # estimated tokens of a call's prompt, current text and facts
FIRST_END = 5  # sequence number of the first turn after which a summary may be written
MAX_LOOK_BACK = 50  # maximum turns to search for the end of the last round

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SummaryInput(ProcessInput):
    prompt_version: PromptVersion
    summary: Summary  # the version to write; its status is `processing`
    request: SummaryRequest
    source_ids: list[int]  # primary keys of the messages, including those of the base that are still in the window
    unreadable: list[SequenceRange]  # archived turns that could not be read
    corrections: CorrectionState  # state before the turns were read

    def with_prompt(self, version: PromptVersion) -> Self:
        return replace(self, prompt_version=version, request=replace(self.request, prompt=version.content))


@dataclass(frozen=True)
class TimedSummary:
    answer: SummaryAnswer
    engine: str
    milliseconds: int


class RollSummary(Process[SummaryInput, TimedSummary]):
    name = PROCESS
    title = "Summarize new messages"
    output = "summaries of new messages"
    lane = Lane.WAITED
    prompt_purpose = PromptResource.Purpose.ROLLING_SUMMARY

    def engine_factory(self, job: Job) -> EngineFactory:
        return language_model(settings.ENGINE.model_for_speed)

    def claim(self, job: Job) -> SummaryInput | Skipped:
        """Read the previous summary, and the new turns, including archived ones.

        Raises:
            ArchiveError: some archived turns can't be read. The last attempt continues without them.
        """
        session = session_of(job)
        summary = _version_to_write(session) or _version_added_meanwhile(session)
        if summary is None:
            return Skipped("no round has ended since the last summary")
        base = summary.base
        corrections = correction_state(session.user)
        messages, unreadable = _new_messages(session, summary)
        if unreadable and job.attempts < settings.JOBS.max_attempts:
            raise ArchiveError(MISSING)
        if not messages:
            summary.fail("The window has no text for the engine.")
            return Skipped("nothing to summarize")
        prompt_version = active_prompt(ROLLING_SUMMARY_URI, session)
        base_facts = [Fact.model_validate(fact) for fact in base.facts] if base else []
        in_window = [fact for fact in base_facts if max(fact.message_indexes, default=-1) >= summary.start_sequence]
        share = settings.MOMENT_BUILDER.max_input_tokens // len(messages)
        return SummaryInput(
            prompt_version=prompt_version,
            summary=summary,
            request=SummaryRequest(
                turns=[engine_turn(one, max(share, 1), session.user.zone, index=one.sequence) for one in messages],
                base_text=base.text if base else "",
                base_facts=in_window,
                start=summary.start_sequence,
                prompt=prompt_version.content,
            ),
            source_ids=_still_in_window(session, base, summary.start_sequence) + [message.pk for message in messages],
            unreadable=unreadable,
            corrections=corrections,
        )

    def think(self, input: SummaryInput, engine: Engine, progress: Progress) -> TimedSummary:
        progress(0, 1)
        started = time.monotonic()
        answer = engine.roll_summary(input.request)
        return TimedSummary(answer, engine.name, round((time.monotonic() - started) * 1000))

    def commit(self, job: Job, input: SummaryInput, answer: TimedSummary) -> None:
        """Complete the version and the job, and queue the next version if rounds ended in the meantime.

        Raises:
            ClaimLost: the job was taken over, or the session was deleted.
            InputChanged: the version was abandoned, or a fact was corrected, in the meantime.
        """
        session = locked_session(job)
        summary = Summary.objects.processing().select_for_update(no_key=True).filter(pk=input.summary.pk).first()
        if summary is None:
            raise InputChanged("The version of the summary was abandoned while the engine was working.")
        check_corrections(session.user_id, input.corrections)
        summary.text = answer.answer.summary_text.strip()
        summary.facts = _facts_in_window(answer.answer, summary)
        summary.source_message_ids = input.source_ids
        summary.engine, summary.prompt_version, summary.job = answer.engine, input.prompt_version, job
        summary.generation_time_ms = answer.milliseconds
        summary.status, summary.completed_at = Summary.Status.COMPLETED, timezone.now()
        summary.save()
        session.record_summary(summary.end_sequence)
        _complete_job(job, summary, input)
        queue_next(session, _end_after(session, summary), requested_by=f"job:{job.job_id}")

    def due_runs(self, appended: Sequence[tuple[Session, Sequence[Message]]]) -> list[DueRun]:
        """Begin the versions that new messages trigger, and return the runs that write them."""
        ended = [(session, messages, end_of_round(messages)) for session, messages in appended]
        due = {
            session: end
            for session, messages, end in ended
            if end is not None and is_due(session, end, may_have_been_read=_may_have_been_read(session, messages))
        }
        by_session: dict[Session, list[Message]] = defaultdict(list)
        for session, messages in appended if due else ():
            by_session[session] += messages
        return _begin(due, by_session)

    def failed(self, job: Job, error: str) -> None:
        """Mark this run's version as failed. The next attempt starts another version, over the newest window."""
        if job.session:
            for summary in Summary.objects.for_session(job.session).processing():
                summary.fail(error)

    def recover(self) -> int:
        """Abandon versions without a job, and queue new ones."""
        stuck = list(Summary.objects.stuck().select_related("session"))
        for summary in stuck:
            summary.fail("No job was working on the summary.")
            queue_next(summary.session, _last_end_of_round(summary.session), requested_by="recover_jobs")
        return len(stuck)

    def rewind(self, job: Job) -> bool:
        latest = Summary.objects.latest_completed(session_of(job))
        return bool(latest and Summary.objects.filter(pk=latest.pk).update(status=Summary.Status.FAILED))

    def workload(self, *, everything: bool) -> Workload:
        """Estimate the calls for summaries. Pending work needs no calls, because settling writes no summaries."""
        conf = settings.ROLLING_SUMMARY
        is_due = Q(message_count__gt=FIRST_END) if everything and conf.enabled else Q(pk=None)
        turns = Cast(F("message_count"), FloatField())
        if_read = Ceil((turns - float(FIRST_END)) / float(conf.every_turns)), turns
        unread = Floor(turns / float(UNREAD_TURNS if _calls_model() else FREE_TURNS))
        if_unread = unread, Least(unread * float(WINDOW), turns)
        calls, shown = (_read_or_unread(*each) for each in zip(if_read, if_unread, strict=True))
        return Workload(
            engine_name(settings.ENGINE.model_for_speed),
            Sum(calls, filter=is_due),
            Sum(tokens_of(shown), filter=is_due),
            usual_answer=400,
            prompt_tokens=PROMPT_TOKENS,
        )


# --- when a summary is due ---


def queue_next(session: Session, end: int | None, *, requested_by: str) -> None:
    """Queue the next version if it is due and none is in progress.

    Args:
        end: sequence number of the turn that ended the last round, if any.
    """
    if end is not None and is_due(session, end):
        Job.objects.request_many(_begin({session: end}, {}), requested_by=requested_by)


def _begin(ends: Mapping[Session, int], appended: Mapping[Session, Sequence[Message]]) -> list[DueRun]:
    """Begin the next versions for sessions that have none in progress. Without sessions, run no query."""
    sessions = Summary.objects.begin_many(ends, appended) if ends else []
    return [DueRun(RollSummary.name, session, due_now=True) for session in sessions]


def is_due(session: Session, end: int, *, may_have_been_read: bool = True) -> bool:
    """Return whether the end of a round makes a summary due.

    Args:
        end: sequence number of the turn that ended the round.
        may_have_been_read: whether a context may have been requested since the session's last summary.
    """
    conf = settings.ROLLING_SUMMARY
    since = end - session.summarized_to
    if not conf.enabled or end < FIRST_END or since < conf.every_turns:
        return False
    return since >= _unread_turns(session) or (may_have_been_read and _counts_as_read(session))


def _unread_turns(session: Session) -> int:
    """Return the number of new turns after which a summary is due even if no context was requested."""
    if _calls_model():
        return UNREAD_TURNS
    return FREE_TURNS if session.summarized_to >= 0 else 0  # the first summary is due immediately


def _calls_model() -> bool:
    return engine_name(settings.ENGINE.model_for_speed) != EXTRACTIVE


def _read_or_unread(read: Combinable, unread: Combinable) -> Case:
    """Return `read` for sessions with requested contexts, and `unread` for others."""
    receipts = ContextReceipt.objects.filter(session=OuterRef("pk"))
    is_read = Exists(receipts) if settings.MEMORY_CONTEXT.receipt_days else Q(pk__isnull=False)
    return Case(When(is_read, then=read), default=unread, output_field=FloatField())


def _may_have_been_read(session: Session, added: Sequence[Message]) -> bool:
    """Return whether a requested context may have ended with a turn after the last summary.

    The added turns can't have been in a context yet.
    """
    return added[0].sequence > session.summarized_to + 1 or not settings.MEMORY_CONTEXT.receipt_days


def _counts_as_read(session: Session) -> bool:
    """Return whether a context was requested since the last summary. If receipts are not stored, return True."""
    if not settings.MEMORY_CONTEXT.receipt_days:
        return True
    return ContextReceipt.objects.for_session(session).filter(after_sequence__gt=session.summarized_to).exists()


# --- claim ---


def _version_to_write(session: Session) -> Summary | None:
    """Return the version to write. If the last one failed, add a new version for the newest window."""
    waiting = Summary.objects.for_session(session).processing().select_related("base")
    if (summary := waiting.first()) is None:
        latest = Summary.objects.latest_completed(session)
        end = _last_end_of_round(session)
        if end is None or (latest and end <= latest.end_sequence):
            return None
        Summary.objects.begin(session, end)
        summary = waiting.first()
    return summary


def _version_added_meanwhile(session: Session) -> Summary | None:
    """Lock the session, and return the version to write.

    An append may have added a version without a new job, because this job was open.
    """
    locked = Session.objects.locked().filter(pk=session.pk).first()
    return _version_to_write(locked) if locked else None


def _new_messages(session: Session, summary: Summary) -> tuple[list[Message], list[SequenceRange]]:
    """Return the window's new turns, as an engine receives them, and the ranges of turns that can't be read."""
    base = summary.base
    first = max(base.end_sequence + 1 if base else 0, summary.start_sequence)
    within = Message.objects.all_turns_of(session, sequence__range=(first, summary.end_sequence)).unretracted()
    rows = within.exclude(role=Message.Role.SYSTEM).order_by("sequence")
    turns, unreadable = with_readable_text(session.user, rows)
    return drop_platform_text(turns), unreadable


def _last_end_of_round(session: Session) -> int | None:
    """Return the sequence number where the last round ended. Read archived turns only if needed."""
    newest = session.messages.unretracted().filter(user_id=session.user_id).order_by("-sequence")
    if (end := end_of_round(newest.turns()[:MAX_LOOK_BACK])) is not None:
        return end
    archived, _unreadable = with_readable_text(session.user, newest.archived()[:MAX_LOOK_BACK])
    return end_of_round(archived)


def _still_in_window(session: Session, base: Summary | None, start: int) -> list[int]:
    """Return the ids of the base version's source turns that are still in the window."""
    if base is None:
        return []
    turns = session.messages.turns().filter(user_id=session.user_id, pk__in=base.source_message_ids)
    found = list(turns.values_list("pk", "sequence", "retracted_at"))
    in_window = [pk for pk, sequence, retracted_at in found if sequence >= start and retracted_at is None]
    # For archived turns, only the ids are known. In a session, ids grow with the sequence numbers, so use the last ids.
    archived = sorted(set(base.source_message_ids) - {pk for pk, _sequence, _retracted_at in found})
    slid_out = max(len(archived) - max(session.kept_from_sequence - start, 0), 0)
    return sorted(in_window + archived[slid_out:])


# --- commit ---


def _facts_in_window(answer: SummaryAnswer, summary: Summary) -> list[dict[str, object]]:
    """Return the facts to store, with only the messages in the window. Drop facts without such a message."""
    window_range = range(summary.start_sequence, summary.end_sequence + 1)
    facts: list[dict[str, object]] = []
    for fact in answer.facts:
        indexes = sorted({index for index in fact.message_indexes if index in window_range})
        if indexes:
            facts.append({"fact": fact.fact, "message_indexes": indexes})
    return facts


def _complete_job(job: Job, summary: Summary, input: SummaryInput) -> None:
    result = {
        "summary_id": summary.pk,
        "source_count": len(summary.source_message_ids),
        "start_sequence": summary.start_sequence,
        "end_sequence": summary.end_sequence,
        "engine": summary.engine,
    }
    if input.unreadable:
        result["unreadable"] = input.unreadable
    complete(job, "memory_summary_created", result)
    before = input.summary.base.start_sequence if input.summary.base else summary.start_sequence
    logger.info(
        "summary rolled",
        start=summary.start_sequence,
        end=summary.end_sequence,
        milliseconds=summary.generation_time_ms,
        slid_out=[before, summary.start_sequence - 1] if before < summary.start_sequence else [],
    )


def _end_after(session: Session, summary: Summary) -> int | None:
    """Return the end of the last round if it came after the end of this version, or None."""
    end = _last_end_of_round(session) if session.last_sequence > summary.end_sequence else None
    return end if end is not None and end > summary.end_sequence else None
