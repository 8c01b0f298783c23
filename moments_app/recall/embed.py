"""`embed`: texts that have no vector of the model in use get one, a batch a run.

A job is about a session's turns, about a person's facts and moments, or about a shard's facts. What fails to embed is
found by its words all the same; a sweep tries failed jobs again.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import transaction
from django.db.models import (
    BooleanField,
    Case,
    Exists,
    ExpressionWrapper,
    F,
    FloatField,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Cast, Ceil, Greatest
from django.db.models.lookups import GreaterThan
from django.utils import timezone

from moments_app import engines
from moments_app.engines import Caller, embedder_name, embedding_model
from moments_app.engines.interface import EMBEDDING
from moments_app.jobs.process import (
    Asked,
    ClaimLost,
    Lane,
    Moved,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Timing,
    locked_session,
)
from moments_app.jobs.workload import Workload, tokens_of, turns_that
from moments_app.models import Circuit, EmbeddingModel, Job, MemoryAtom, Moment
from moments_app.models.embedding import KINDS, AnyEmbedding, ask_to_embed, whose_memories
from moments_app.models.job import CannotChange
from moments_app.recall.vectors import Text, Vectors, vectors_side_by_side
from moments_app.turns.platform_text import drop_platform_text, is_only_platform_text
from moments_app.turns.rounds import end_of_round
from sessions_app.models import Message, Session, UserProfile

if TYPE_CHECKING:
    from moments_app.engines.embeddings import Embedder

SWEEP = 500  # failed jobs a run, and refused texts of a kind
REFUSALS = 5  # sentences of the endpoint about the texts of a kind
HAS_VECTOR = ExpressionWrapper(Q(vector__isnull=False), output_field=BooleanField())
COUNTED = 10_000  # texts of a kind
TURNS_OF_ROUND = 2.0  # embedded together as people talk
MEMORY_CALLS = 2.0  # a session, for its moments and its facts
MEMORY_SHARE = 0.4  # of a session's tokens, that moments and facts made of it have
SPOKEN = (Message.Role.USER, Message.Role.ASSISTANT)


@dataclass(frozen=True)
class EmbedInput(ProcessInput):
    """The input of a run.

    Args:
        model: in use at the claim.
        texts: a batch.
        session: of the texts, where they are turns.
        last_sequence: of the session's turns that this run takes care of.
        is_cut: more is waiting than one batch takes.
    """

    model: EmbeddingModel
    texts: list[Text]
    session: Session | None = None
    last_sequence: int = -1
    is_cut: bool = False


class Embed(Process[EmbedInput, Vectors]):
    """Gives a batch of texts their vectors."""

    name = "embed"
    title = "Embed new texts"
    makes = "new texts in searches by meaning"
    lane = Lane.INDEX
    is_upkeep = True
    sweep_timing = Timing(minutes=10)

    def caller(self, job: Job) -> Caller | None:
        """Return the endpoint of the settings, for the model in use."""
        if not settings.EMBEDDING.is_on:
            return None
        model = EmbeddingModel.objects.in_use()
        return embedding_model(model.recipe)

    def workload(self, *, everything: bool) -> Workload | None:
        """Reckon with a call for each round as it is held, or for a batch of turns that wait; and two for memories."""
        conf = settings.EMBEDDING
        if not conf.is_on:
            return None
        turns = Greatest(turns_that(F("last_sequence") - F("embedded_sequence"), everything=everything), 0)
        calls = Ceil(Cast(turns, FloatField()) / (TURNS_OF_ROUND if everything else conf.batch_size))
        memories = Case(When(GreaterThan(turns, 0), then=Value(MEMORY_CALLS)), default=Value(0.0))
        tokens = Sum(tokens_of(turns)) * (1 + MEMORY_SHARE)
        return Workload(embedder_name(conf.model), Sum(calls + memories), tokens, 0, 0, purpose=EMBEDDING)

    def claim(self, job: Job) -> EmbedInput | Skipped:
        """Read texts that have no vector, a batch for each call that may be under way."""
        caller = self.caller(job)
        if caller is None:
            return Skipped("no embeddings provider is set")
        model = EmbeddingModel.objects.in_use()
        # Where it isn't sure that the endpoint answers, one call asks.
        size = settings.EMBEDDING.batch_size * (engines.CALLS_AT_ONCE if Circuit.objects.is_sound(caller) else 1)
        return _turns_of(job.session, model, size) if job.session else _memories_of(job, model, size)

    def think(self, input: EmbedInput, engine: "Embedder", progress: Progress) -> Vectors:
        """Call the endpoint; what it answers is kept even where it doesn't answer all.

        Raises:
            EngineError: it doesn't.
        """
        progress(0, len(input.texts))
        answered = vectors_side_by_side(input.texts, engine, progress)
        if answered.error:
            keep_answered(input.model, answered.made)
            raise answered.error
        return answered.made

    def commit(self, job: Job, input: EmbedInput, answer: Vectors) -> None:
        """Write the vectors and complete the job.

        Raises:
            ClaimLost: the job was taken over or cancelled, or the session is gone.
            Moved: these turns were taken care of meanwhile.
        """
        is_more = input.is_cut
        if input.session:
            session = locked_session(job)
            if session.embedded_to != input.session.embedded_to:
                raise Moved("Another job already embedded these turns.")
            Session.objects.filter(pk=session.pk).update(embedded_sequence=input.last_sequence)
            is_more |= session.last_sequence > input.last_sequence  # an append asked while this job was open
        refused = sum(isinstance(vector, str) for _text, vector in answer)
        written = write(input.model, answer)
        if input.session is None and not job.is_claimed():
            raise ClaimLost
        job.complete({"embedded": written - refused, "refused": refused, "model": str(input.model)})
        if is_more:
            about = {"session": job.session} if job.session else whose_memories(job)
            Job.objects.request(self.name, requested_by=f"job:{job.job_id}", **about)

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        """Tell whether turns are embedded, as their round has ended."""
        conf = settings.EMBEDDING
        return conf.is_on and conf.turns and end_of_round(messages) is not None

    def sweep(self, *, dry_run: bool = False) -> Asked:
        """Try again what failed to be embedded.

        Refused texts are sent again when they are due.
        """
        again = ask_refused_again(f"sweep:{self.name}", dry_run=dry_run)
        for job in Job.objects.filter(process=self.name, status=Job.Status.FAILED).order_by("-id")[:SWEEP]:
            again += dry_run or _restarted(job)
        return Asked(again)


def _restarted(job: Job) -> bool:
    try:
        job.restart()
    except CannotChange:  # another job about the same is open, and does its work
        return False
    return True


def ask_refused_again(requested_by: str, *, dry_run: bool = False) -> int:
    """Ask for jobs about refused texts that are to be sent once more; return how many."""
    model = EmbeddingModel.objects.active().first() if settings.EMBEDDING.is_on else None
    about = _subjects_of_refused(model) if model else []
    for subject in () if dry_run else about:
        ask_to_embed(requested_by, **subject)
    return len(about)


def _subjects_of_refused(model: EmbeddingModel) -> list[dict[str, Any]]:
    """Return what jobs are about that send refused texts once more, some at a time."""
    due = {kind: _due_again(kind, model)[:SWEEP] for kind in KINDS}
    sessions = {turn.session_id: {"session": turn.session} for turn in due["turn"].prefetch_related("session")}
    memories = [whose_memories(source) for source in [*due["fact"].select_related("stream"), *due["moment"]]]
    return [*sessions.values(), *({str(about): about for about in memories}.values())]


# --- what has no vector ---


def kinds() -> list[str]:
    """Return the kinds of text that are embedded."""
    return [kind for kind in KINDS if settings.EMBEDDING.turns or kind != "turn"]


def batches(kind: str, model: EmbeddingModel) -> Iterator[list[Text]]:
    """Yield the texts of a kind without a vector by primary key, as many as calls take at a time.

    Each text is yielded once, whether or not it gets a vector.
    """
    after, size = 0, settings.EMBEDDING.batch_size * engines.CALLS_AT_ONCE
    while batch := list(without_vector(kind, model).filter(pk__gt=after)[:size]):
        after = batch[-1].pk
        if texts := texts_of(batch):
            yield texts


def without_vector(kind: str, model: EmbeddingModel) -> QuerySet[Any]:
    """Return the sources of a kind that have no vector of a model, by primary key; refused ones when they are due."""
    settled = Q(vector__isnull=False) | Q(ask_again_at__gt=timezone.now())
    there = KINDS[kind].objects.filter(settled, model=model, **_of_source(kind))
    return _SOURCES[kind]().filter(~Exists(there)).order_by("pk")


def _due_again(kind: str, model: EmbeddingModel) -> QuerySet[Any]:
    """Return the sources of a kind that were refused and are to be sent once more; by the index of refused ones."""
    return _SOURCES[kind]().filter(Exists(KINDS[kind].objects.due_again(model).filter(**_of_source(kind))))


def _of_source(kind: str) -> dict[str, OuterRef]:
    """Return the condition on vectors of a kind that they are those of a source, in a subquery.

    Of a turn by its person too, for where turns are distributed a person's rows are together. A fact may be nobody's.
    """
    return {"source_id": OuterRef("pk")} | ({"user_id": OuterRef("user_id")} if kind == "turn" else {})


@dataclass(frozen=True)
class Filled:
    """Progress of a model with a kind of text.

    Args:
        kind: a key of `KINDS`.
        vectors: texts that have one.
        refused: texts that the endpoint refused when it was asked last.
        texts: that can have one.
        is_exact: counted; else vectors and texts are what the database's planner reckons.
    """

    kind: str
    vectors: int
    refused: int
    texts: int
    is_exact: bool

    @property
    def waiting(self) -> int:
        """Texts that nobody asked the endpoint about yet."""
        return max(0, self.texts - self.vectors - self.refused)


def filled(model: EmbeddingModel) -> list[Filled]:
    """Tell how far a model is; large numbers are not counted, which would take seconds."""
    refused = EmbeddingModel.objects.filter(pk=model.pk).refused_by_kind()
    return [_filled(kind, model, refused[kind]) for kind in kinds()]


def _filled(kind: str, model: EmbeddingModel, refused: int) -> Filled:
    own = KINDS[kind].objects.filter(model=model)
    if kind == "turn":  # archived ones keep their vectors, and are no source any more
        own = own.filter(source__kind=Message.Kind.TURN, user_id=F("source__user_id"))
    rows = own.filter(vector__isnull=False), _SOURCES[kind]()
    vectors, texts = (json.loads(some.explain(format="json"))[0]["Plan"]["Plan Rows"] for some in rows)
    if max(vectors, texts) <= COUNTED:
        vectors, texts = (some[: COUNTED + 1].count() for some in rows)
    is_exact = max(vectors, texts) <= COUNTED
    return Filled(kind, min(vectors, texts), refused, texts, is_exact)


def refusals(model: EmbeddingModel) -> list[str]:
    """Return what the endpoint said of the texts that it refused last: its errors' kinds, nothing of the texts."""
    said = [kind.objects.refused(model).exclude(refusal="").values_list("refusal") for kind in KINDS.values()]
    return sorted({words for rows in said for (words,) in rows.distinct()[:REFUSALS]})


def _facts() -> QuerySet[Any]:
    return MemoryAtom.objects.findable()


def _moments() -> QuerySet[Any]:
    return Moment.objects.defer("search_vector")


def _turns() -> QuerySet[Any]:
    spoken = Message.objects.turns().believed().filter(role__in=SPOKEN).exclude(content="")
    return spoken.exclude(is_only_platform_text())


_SOURCES: dict[str, Callable[[], QuerySet[Any]]] = {"fact": _facts, "moment": _moments, "turn": _turns}


def texts_of(sources: Sequence[Any]) -> list[Text]:
    """Return what of facts, moments or turns is embedded; of turns not what the platform itself put there."""
    turns = [source for source in sources if isinstance(source, Message)]
    others = [source for source in sources if not isinstance(source, Message)]
    return [text for text in map(_text_of, [*others, *drop_platform_text(turns)]) if text]


def _text_of(source: Any) -> Text | None:
    if isinstance(source, MemoryAtom):
        kind, said_at, text = "fact", source.formed_at, source.content
    elif isinstance(source, Moment):
        kind, said_at, text = "moment", source.ends_at, f"{source.summary}\n{source.detail}"
    else:
        kind, said_at, text = "turn", source.created_at, source.spoken
    text = text.strip()
    return Text(kind, source.pk, source.user_id, said_at, text) if text else None


# --- claim ---


def _turns_of(session: Session, model: EmbeddingModel, size: int) -> EmbedInput | Skipped:
    """Read turns after the last one taken care of; what has a vector already is passed over."""
    own = {"session": session, "user_id": session.user_id}
    after = without_vector("turn", model).filter(**own, sequence__gt=session.embedded_to)
    waiting = list(after.order_by("sequence")[: size + 1])
    turns, is_cut = waiting[:size], len(waiting) > size
    again = list(_due_again("turn", model).filter(**own, sequence__lte=session.embedded_to)[: size + 1 - len(turns)])
    if not (turns or again):
        return Skipped("every turn has its vector")
    last = turns[-1].sequence if is_cut else session.last_sequence
    batch = [*turns, *again][:size]
    return EmbedInput(None, model, texts_of(batch), session, last, is_cut or len(batch) < len(turns) + len(again))


def _memories_of(job: Job, model: EmbeddingModel, size: int) -> EmbedInput | Skipped:
    waiting: list[Any] = []
    for kind in ("fact", "moment") if job.user_id else ("fact",):
        room = size + 1 - len(waiting)
        waiting += without_vector(kind, model).filter(**whose_memories(job))[:room]
    texts = texts_of(waiting[:size])
    is_cut = len(waiting) > len(texts)
    return EmbedInput(None, model, texts, is_cut=is_cut) if texts else Skipped("every text has its vector")


# --- commit ---


def keep_answered(model: EmbeddingModel, made: Vectors) -> None:
    """Keep the vectors of texts whose job goes on with others."""
    if made:
        with transaction.atomic():
            UserProfile.objects.hold({text.user_id for text, _vector in made if text.user_id is not None})
            write(model, made)


@transaction.atomic
def write(model: EmbeddingModel, made: Vectors) -> int:
    """Keep the vectors of texts that are still there and still the same, and note which ones are refused.

    Returns:
        How many texts that are.
    """
    by_owner: dict[tuple[str, int | None], dict[int, tuple[Text, list[float] | str]]] = defaultdict(dict)
    for text, vector in made:
        by_owner[text.kind, text.user_id][text.pk] = (text, vector)
    # In an order in which nobody waits for each other.
    owners = sorted(by_owner, key=lambda owner: (owner[0], owner[1] or 0))
    return sum(_write_of(*owner, model, by_owner[owner]) for owner in owners)


def _write_of(
    kind: str, user_id: int | None, model: EmbeddingModel, made: dict[int, tuple[Text, list[float] | str]]
) -> int:
    """Write what is made of a person's texts of a kind, or of a kind's texts of nobody, by their primary keys.

    Of one person at a time: where turns are distributed, those of several are not locked by one statement.
    """
    there = _SOURCES[kind]().filter(user_id=user_id, pk__in=made).select_for_update(no_key=True, of=("self",))
    now = texts_of(list(there.order_by("pk")))
    same = [made[text.pk] for text in now if made[text.pk][0] == text]
    return _keep(KINDS[kind].objects.filter(user_id=user_id, model=model), model, same)


def _keep(own: QuerySet[Any], model: EmbeddingModel, made: Vectors) -> int:
    """Write the rows of texts, whose sources are locked; no refusal takes the place of a vector.

    Args:
        own: those that their owner has of the model.
        model: that made the vectors.
        made: of texts of one kind and owner.
    """
    there = own.filter(source_id__in=[text.pk for text, _vector in made])
    known = {
        pk: (has_vector, times) for pk, has_vector, times in there.values_list("source_id", HAS_VECTOR, "refusals")
    }
    rows: list[Any] = [
        _row(own.model, model, text, vector, 0 if has_vector else times)
        for text, vector in made
        for has_vector, times in [known.get(text.pk, (False, 0))]
        if not (isinstance(vector, str) and has_vector)
    ]
    if replaced := [row.source_id for row in rows if row.source_id in known]:
        own.filter(source_id__in=replaced).delete()
    own.model.objects.bulk_create(rows)
    return len(rows)


def _row(
    embedding: type[AnyEmbedding], model: EmbeddingModel, text: Text, vector: list[float] | str, refusals: int
) -> AnyEmbedding:
    row = embedding(model=model, user_id=text.user_id, source_id=text.pk, said_at=text.said_at, refusals=refusals)
    if isinstance(vector, str):
        row.refuse(vector)
    else:
        row.vector = vector
    return row
