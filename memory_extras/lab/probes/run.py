"""`run_probes`: build the context for each probe's question, and record how much of the answer it contains.

The contexts are built as for requests, under the same role and rules, but are not recorded as served. No model is
called, except to embed the questions if embeddings are on. Each result is committed separately, so an interrupted run
can resume.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django.conf import settings

from memory_extras.lab.models import Probe, ProbeQuerySet, ProbeResult
from moments_app.context.assemble import ContextRequest, Envelope, assembled_context
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.input import Item
from moments_app.engines.words import plain_words
from moments_app.jobs.process import ClaimLost, Lane, Process, ProcessInput, Progress, Skipped
from moments_app.models import Job, PromptResource
from sessions_app.database.sql import insert_if_missing
from sessions_app.lexemes import QueryWord, stems_in, whole_words
from sessions_app.models import Message, Session
from sessions_app.row_security import acting_for

NO_SESSION = "The person has no session to ask the question in."


@dataclass(frozen=True)
class ProbesInput(ProcessInput):
    probes: int
    met: int


class RunProbes(Process[ProbesInput, None]):
    """Runs the probes of a person, or of one session."""

    name = "run_probes"
    title = "Run probes"
    output = "answers to probes"
    lane = Lane.BULK
    is_upkeep = True

    def prepare(self, job: Job, progress: Progress) -> None:
        waiting = _probes_of(job).exclude(results__run_id=job.job_id)
        total = waiting.count()
        for done, _ in enumerate(run_probes(waiting, job.job_id, requested_by=job.requested_by), start=1):
            progress(done, total)

    def claim(self, job: Job) -> ProbesInput | Skipped:
        results = ProbeResult.objects.filter(run_id=job.job_id, user=job.user_id)
        found = ProbesInput(None, results.count(), results.filter(is_met=True).count())
        return found if found.probes else Skipped("there are no probes")

    def think(self, input: ProbesInput, engine: None, progress: Progress) -> None:
        """Do nothing, because the process calls no model."""

    def commit(self, job: Job, input: ProbesInput, answer: None) -> None:
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"probes": input.probes, "met": input.met})


def _probes_of(job: Job) -> ProbeQuerySet:
    probes = Probe.objects.filter(user=job.user_id)
    return probes.filter(session=job.session) if job.session_id else probes


def run_probes(probes: ProbeQuerySet, run_id: uuid.UUID, *, requested_by: str) -> Iterator[ProbeResult]:
    """Run probes of any people, and save one result each, with the same run id. Don't call it in a transaction."""
    for probe in list(probes.select_related("user", "session", "source_session").order_by("pk")):
        result = run_probe(probe, run_id, requested_by=requested_by)
        if result is not None:
            yield result


def run_probe(probe: Probe, run_id: uuid.UUID, *, requested_by: str) -> ProbeResult | None:
    """Run one probe and save the result. Return None if the probe or its person no longer exists."""
    application = probe.user.application_id
    session = probe_session(probe)
    try:
        envelope = _context(probe, session, application) if session else None
        problem = "" if envelope else NO_SESSION
    except BudgetTooSmall as error:
        envelope, problem = None, str(error)
    with acting_for(probe.user.user_id, application=application, for_write=True) as user:
        if user is None or not Probe.objects.for_user(user).filter(pk=probe.pk).exists():
            return None
        found = measure(probe, evidence_of(probe), envelope) if envelope else Measure(problem=problem)
        more = {"is_met": found.is_met, "setup": setup_of(application), "requested_by": requested_by}
        result = ProbeResult(run_id=run_id, probe=probe, user=user, **asdict(found), **more)
        insert_if_missing(result)
        return result


def _context(probe: Probe, session: Session, application: int) -> Envelope | None:
    request = ContextRequest(query=probe.question)
    return assembled_context(probe.user.user_id, application, session.session_id, request, "query")


def probe_session(probe: Probe) -> Session | None:
    """Return a probe's session, or else its person's latest session. None if there is none."""
    if probe.session_id:
        return probe.session
    return Session.objects.for_user(probe.user).order_by("-last_activity_at", "-id").first()


def evidence_of(probe: Probe) -> list[Message]:
    """Return the existing evidence turns, including archived ones."""
    if probe.source_session_id is None:
        return []
    turns = Message.objects.filter(session=probe.source_session_id, user=probe.user_id, retracted_at=None)
    return list(turns.exclude(kind=Message.Kind.PARTITION).filter(sequence__in=probe.evidence_sequences))


# --- how much of the expected answer a context contains: its words, and the evidence turns ---

# No model answers or judges. That would cost two calls per question, vary between runs, and measure the answering model
# more than the memory.

MET_SHARE = 0.5  # minimum share of the expected answer's words in the context for a probe to be met
PRESENT_SHARE = 0.8  # minimum share of a turn's words in the context for the turn to count as present
LEFT_OUT = ("policy", "query")
MAX_MISSING = 20  # missing words to report
WORD_MAX_CHARS = 255


@dataclass(frozen=True)
class Measure:
    """The part of an answer that reached a context.

    Args:
        missing_words: The first of the missing words.
        refs: The addresses of the context's items, by layer.
        problem: Why there is no context. Blank if there is one.
    """

    words_found: int = 0
    words_count: int = 0
    missing_words: list[str] = field(default_factory=list)
    evidence_found: int = 0
    evidence_count: int = 0
    tokens: int = 0
    refs: dict[str, list[str]] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the context has enough of the words and, if there is evidence, one of its turns."""
        if self.problem or not self.words_count or (self.evidence_count and not self.evidence_found):
            return False
        return self.words_found >= MET_SHARE * self.words_count


def measure(probe: Probe, evidence: Sequence[Message], envelope: Envelope) -> Measure:
    """Measure a context by the words of the expected answer, and the evidence turns that exist.

    The question itself and the policy are ignored. A turn counts as present if the context has its address, or most of
    its words, because a fact or a moment may repeat its content. Negation is ignored: "not in Oslo" has the word Oslo.
    """
    items = _items(probe, envelope)
    stems = frozenset[str]().union(*(stems_in(item.text) for item in items))
    words = whole_words(probe.expected)
    missing = [word.word[:WORD_MAX_CHARS] for word in words if not _contains(word, stems)]
    standing = {item.ref for item in items}
    layers = envelope.filled.layers.items()
    return Measure(
        words_found=len(words) - len(missing),
        words_count=len(words),
        missing_words=missing[:MAX_MISSING],
        evidence_found=sum(_is_present(turn, probe, standing, stems) for turn in evidence),
        evidence_count=len(probe.evidence_sequences),
        tokens=envelope.filled.tokens,
        refs={name: [line.item.ref for line in lines if line.item.ref] for name, lines in layers if lines},
    )


def _items(probe: Probe, envelope: Envelope) -> list[Item]:
    layers = ((name, lines) for name, lines in envelope.filled.layers.items() if name not in LEFT_OUT)
    asked = plain_words(probe.question)
    return [line.item for _, lines in layers for line in lines if plain_words(line.item.text) != asked]


def _contains(word: QueryWord, stems: frozenset[str]) -> bool:
    return not stems.isdisjoint(word.stems)


def _is_present(turn: Message, probe: Probe, standing: set[str], stems: frozenset[str]) -> bool:
    assert probe.source_session is not None  # evidence implies a session
    if f"rem://sessions/{probe.source_session.session_id}/messages/{turn.sequence}" in standing:
        return True
    words = whole_words(turn.content)
    return bool(words) and sum(_contains(word, stems) for word in words) >= PRESENT_SHARE * len(words)


def setup_of(application: int) -> dict[str, dict[str, Any]]:
    """Return the prompt versions and relevant settings for contexts of an application."""
    prompts = PromptResource.objects.in_force(application)
    context, engine, embedding = settings.MEMORY_CONTEXT, settings.ENGINE, settings.EMBEDDING
    return {
        "prompts": {resource.uri: resource.active_version.number for resource in prompts if resource.active_version},
        "settings": {
            "ENGINE__PROVIDER": "openai" if engine.uses_model else "extractive",
            "ENGINE__MODEL": engine.model,
            "ENGINE__FAST_MODEL": engine.model_for_speed,
            "EMBEDDING__MODEL": embedding.model if embedding.is_on else "",
            "MEMORY_CONTEXT__MAX_TOKENS": context.max_tokens,
            "MEMORY_CONTEXT__HOT_TURNS_LIMIT": context.hot_turns_limit,
        },
    }
