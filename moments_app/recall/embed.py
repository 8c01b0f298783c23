"""`embed`: create missing vectors of the model in use, one batch of texts per run.

A job covers a session's turns; a person's facts, moments and stored items; or a shard's facts. Items that belong to no
person get no vectors. Text search still finds texts without a vector. A sweep retries failed jobs.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection, transaction
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
    ClaimLost,
    InputChanged,
    Lane,
    Process,
    ProcessInput,
    Progress,
    QueuedJobs,
    Skipped,
    Timing,
    Workload,
    locked_session,
    tokens_of,
    turns_to_estimate,
)
from moments_app.models import Circuit, EmbeddingModel, Job, MemoryAtom, Moment, StoredItem
from moments_app.models.embedding import KINDS, AnyEmbedding, ask_to_embed, owner_arguments
from moments_app.models.job import CannotChange
from moments_app.recall.request_vectors import Text, Vectors, vectors_in_parallel
from moments_app.turns.engine_input import end_of_round
from moments_app.turns.platform_text import drop_platform_text, is_only_platform_text
from sessions_app.models import Message, Session, UserProfile

if TYPE_CHECKING:
    from moments_app.engines.embeddings import Embedder

SWEEP = 500  # maximum failed jobs per run, and maximum rejected texts of each kind
REFUSALS = 5  # maximum distinct error messages for the texts of each kind
HAS_VECTOR = ExpressionWrapper(Q(vector__isnull=False), output_field=BooleanField())
COUNTED = 10_000  # maximum texts of each kind to count; larger numbers are estimated
TURNS_OF_ROUND = 2.0  # average turns per call during a conversation
MEMORY_CALLS = 2.0  # average calls per session for moments and facts
MEMORY_SHARE = 0.4  # tokens of moments and facts, as a share of the session's tokens
SPOKEN = (Message.Role.USER, Message.Role.ASSISTANT)


@dataclass(frozen=True)
class EmbedInput(ProcessInput):
    """The input of a run.

    Args:
        job: the claimed job.
        model: the model in use when the job was claimed.
        session: the session, if the texts are turns.
        last_sequence: the last turn of the session that this run covers.
        is_cut: whether more texts are waiting than fit into the batch.
    """

    job: Job
    model: EmbeddingModel
    texts: list[Text]
    session: Session | None = None
    last_sequence: int = -1
    is_cut: bool = False


@dataclass(frozen=True)
class Embedded:
    """The result of a run.

    Args:
        made: the vectors and rejections.
        written: the number of texts whose vectors or rejections are already written; None if the commit writes them.
    """

    made: Vectors
    written: int | None = None


class Embed(Process[EmbedInput, Embedded]):
    """Creates the vectors of a batch of texts.

    The commit writes the vectors of turns, because it also moves the session's counter. Vectors of memories are written
    before the commit. So the commit holds no lock on a text while it waits for requests that have joined the job, and
    can't cause a deadlock.
    """

    name = "embed"
    title = "Embed new texts"
    makes = "new texts in searches by meaning"
    lane = Lane.INDEX
    is_upkeep = True
    sweep_timing = Timing(minutes=10)

    def caller(self, job: Job) -> Caller | None:
        if not settings.EMBEDDING.is_on:
            return None
        model = EmbeddingModel.objects.in_use()
        return embedding_model(model.recipe)

    def workload(self, *, everything: bool) -> Workload | None:
        """Estimate the calls: two for memories, and one per batch of waiting turns. For all turns, one per round."""
        conf = settings.EMBEDDING
        if not conf.is_on:
            return None
        turns = Greatest(turns_to_estimate(F("last_sequence") - F("embedded_sequence"), everything=everything), 0)
        calls = Ceil(Cast(turns, FloatField()) / (TURNS_OF_ROUND if everything else conf.batch_size))
        memories = Case(When(GreaterThan(turns, 0), then=Value(MEMORY_CALLS)), default=Value(0.0))
        tokens = Sum(tokens_of(turns)) * (1 + MEMORY_SHARE)
        return Workload(embedder_name(conf.model), Sum(calls + memories), tokens, 0, 0, purpose=EMBEDDING)

    def claim(self, job: Job) -> EmbedInput | Skipped:
        """Read texts that have no vector: one batch for each call that can run in parallel."""
        caller = self.caller(job)
        if caller is None:
            return Skipped("no embeddings provider is configured")
        model = EmbeddingModel.objects.in_use()
        # If the endpoint may be down, try it with a single call.
        size = settings.EMBEDDING.batch_size * (engines.CALLS_AT_ONCE if Circuit.objects.is_healthy(caller) else 1)
        if job.session:
            return _turns_of(job, job.session, model, size)
        found = _memories_of(job, model, size)
        if isinstance(found, Skipped) and job.is_claimed():  # after waiting for the requests that have joined the job
            return _memories_of(job, model, size)
        return found

    def think(self, input: EmbedInput, engine: "Embedder", progress: Progress) -> Embedded:
        """Call the endpoint, and write the vectors of memories. If some calls fail, write the vectors of the others.

        Raises:
            ClaimLost: another worker took over the job, or the job was canceled.
            EngineError: some of the calls failed.
        """
        progress(0, len(input.texts))
        answered = vectors_in_parallel(input.texts, engine, progress)
        if input.session and not answered.error:
            return Embedded(answered.made)
        written = save_received(input.model, answered.made, None if input.session else input.job)
        if answered.error:
            raise answered.error
        return Embedded(answered.made, written)

    def commit(self, job: Job, input: EmbedInput, answer: Embedded) -> None:
        """Write the vectors of turns, and complete the job. If texts were added in the meantime, queue the next job.

        Raises:
            ClaimLost: another worker took over the job, the job was canceled, or the session was deleted.
            InputChanged: another job embedded these turns in the meantime.
        """
        is_more = input.is_cut
        if input.session:
            session = locked_session(job)
            if session.embedded_sequence != input.session.embedded_sequence:
                raise InputChanged("Another job already embedded these turns.")
            Session.objects.filter(pk=session.pk).update(embedded_sequence=input.last_sequence)
            is_more |= session.last_sequence > input.last_sequence
        else:
            if not job.is_claimed():  # after waiting for the requests that have joined the job
                raise ClaimLost
            is_more |= isinstance(_memories_of(job, input.model, 1), EmbedInput)
        written = write(input.model, answer.made) if answer.written is None else answer.written
        refused = sum(isinstance(vector, str) for _text, vector in answer.made)
        job.complete({"embedded": written - refused, "refused": refused, "model": str(input.model)})
        if is_more:
            about = {"session": job.session} if job.session else owner_arguments(job)
            Job.objects.request(self.name, requested_by=f"job:{job.job_id}", **about)

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        """Return whether turns are embedded and these messages end a round."""
        conf = settings.EMBEDDING
        return conf.is_on and conf.turns and end_of_round(messages) is not None

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Restart failed embedding jobs, and resend rejected texts that are due."""
        again = ask_refused_again(f"sweep:{self.name}", dry_run=dry_run)
        for job in Job.objects.filter(process=self.name, status=Job.Status.FAILED).order_by("-id")[:SWEEP]:
            again += dry_run or _restarted(job)
        return QueuedJobs(again)


def _restarted(job: Job) -> bool:
    try:
        job.restart()
    except CannotChange:  # another open job does the same work
        return False
    return True


def ask_refused_again(requested_by: str, *, dry_run: bool = False) -> int:
    """Queue jobs for rejected texts that are due to be sent again. Return the number of jobs."""
    model = EmbeddingModel.objects.active().first() if settings.EMBEDDING.is_on else None
    about = _subjects_of_refused(model) if model else []
    for subject in () if dry_run else about:
        ask_to_embed(requested_by, **subject)
    return len(about)


def _subjects_of_refused(model: EmbeddingModel) -> list[dict[str, Any]]:
    """Return the owners of rejected texts to send again: sessions and memories. Read a limited number of texts."""
    due = {kind: _due_again(kind, model)[:SWEEP] for kind in KINDS}
    sessions = {turn.session_id: {"session": turn.session} for turn in due["turn"].prefetch_related("session")}
    sources = [*due["fact"].select_related("stream"), *due["moment"], *due["item"]]
    memories = map(owner_arguments, sources)
    return [*sessions.values(), *({str(about): about for about in memories}.values())]


# --- texts without a vector ---


def kinds() -> list[str]:
    return [kind for kind in KINDS if settings.EMBEDDING.turns or kind != "turn"]


def batches(kind: str, model: EmbeddingModel) -> Iterator[list[Text]]:
    """Yield texts of a kind without a vector, ordered by primary key, in batches for parallel calls.

    Each text is yielded once, even if the endpoint rejects it.
    """
    after, size = 0, settings.EMBEDDING.batch_size * engines.CALLS_AT_ONCE
    while batch := list(without_vector(kind, model).filter(pk__gt=after)[:size]):
        after = batch[-1].pk
        if texts := texts_of(batch):
            yield texts


def without_vector(kind: str, model: EmbeddingModel) -> QuerySet[Any]:
    """Return rows of a kind without a vector of the model, ordered by primary key.

    Include rejected rows only when they are due.
    """
    settled = Q(vector__isnull=False) | Q(ask_again_at__gt=timezone.now())
    there = KINDS[kind].objects.filter(settled, model=model, **_of_source(kind))
    return _SOURCES[kind]().filter(~Exists(there)).order_by("pk")


def _due_again(kind: str, model: EmbeddingModel) -> QuerySet[Any]:
    """Return rejected rows of a kind that are due to be sent again. Uses the index of rejected vectors."""
    return _SOURCES[kind]().filter(Exists(KINDS[kind].objects.due_again(model).filter(**_of_source(kind))))


def _of_source(kind: str) -> dict[str, OuterRef]:
    """Return the filter that matches vectors to the source row of an outer query.

    For turns, the filter includes the person, because distributed tables keep a person's rows together. Other rows are
    not filtered by person, because facts may have none.
    """
    return {"source_id": OuterRef("pk")} | ({"user_id": OuterRef("user_id")} if kind == "turn" else {})


@dataclass(frozen=True)
class Filled:
    """The progress of a model for one kind of text.

    Args:
        kind: a key of `KINDS`.
        vectors: the number of texts that have a vector.
        refused: the number of texts that the endpoint rejected on the latest attempt.
        texts: the number of texts that can have a vector.
        is_exact: whether the rows were counted. If not, `vectors` and `texts` are estimates of the query planner.
    """

    kind: str
    vectors: int
    refused: int
    texts: int
    is_exact: bool

    @property
    def waiting(self) -> int:
        return max(0, self.texts - self.vectors - self.refused)


def filled(model: EmbeddingModel) -> list[Filled]:
    """Return the progress of a model. Large numbers are estimated, because counting would take seconds."""
    refused = EmbeddingModel.objects.filter(pk=model.pk).refused_by_kind()
    return [_filled(kind, model, refused[kind]) for kind in kinds()]


def _filled(kind: str, model: EmbeddingModel, refused: int) -> Filled:
    own = KINDS[kind].objects.filter(model=model)
    if kind == "turn":  # archived turns keep their vectors but are no longer sources
        own = own.filter(source__kind=Message.Kind.TURN, user_id=F("source__user_id"))
    rows = own.filter(vector__isnull=False), _SOURCES[kind]()
    vectors, texts = (json.loads(some.explain(format="json"))[0]["Plan"]["Plan Rows"] for some in rows)
    if max(vectors, texts) <= COUNTED:
        vectors, texts = _counts(*rows)
    is_exact = max(vectors, texts) <= COUNTED
    return Filled(kind, min(vectors, texts), refused, texts, is_exact)


def _counts(*rows: QuerySet[Any]) -> tuple[int, ...]:
    """Count the rows of several queries with one query. Stop each count at `COUNTED` + 1."""
    queries = [some[: COUNTED + 1].values("pk").query.sql_with_params() for some in rows]
    counts = ", ".join(f"(SELECT count(*) FROM ({sql}) counted)" for sql, _parameters in queries)  # noqa: S608 (ours)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {counts}", [value for _sql, parameters in queries for value in parameters])
        found: tuple[int, ...] = cursor.fetchone()
    return found


def refusals(model: EmbeddingModel) -> list[str]:
    """Return the endpoint's errors for rejected texts. They contain no user text."""
    said = [kind.objects.refused(model).exclude(refusal="").values_list("refusal") for kind in KINDS.values()]
    return sorted({words for rows in said for (words,) in rows.distinct()[:REFUSALS]})


def _facts() -> QuerySet[Any]:
    return MemoryAtom.objects.findable()


def _moments() -> QuerySet[Any]:
    return Moment.objects.defer("search_vector")


def _turns() -> QuerySet[Any]:
    spoken = Message.objects.turns().unretracted().filter(role__in=SPOKEN).exclude(content="")
    return spoken.exclude(is_only_platform_text())


def _items() -> QuerySet[Any]:
    owned = StoredItem.objects.live().filter(user__isnull=False).exclude(text="")
    return owned.filter(text__regex=r"\S").defer("value", "search_vector")


_SOURCES: dict[str, Callable[[], QuerySet[Any]]] = {
    "fact": _facts,
    "moment": _moments,
    "turn": _turns,
    "item": _items,
}


def texts_of(sources: Sequence[Any]) -> list[Text]:
    """Return the text to embed for each fact, moment, turn or item. Omit platform text from turns."""
    turns = [source for source in sources if isinstance(source, Message)]
    others = [source for source in sources if not isinstance(source, Message)]
    return [text for text in map(_text_of, [*others, *drop_platform_text(turns)]) if text]


def _text_of(source: Any) -> Text | None:
    if isinstance(source, MemoryAtom):
        kind, said_at, text = "fact", source.formed_at, source.content
    elif isinstance(source, Moment):
        kind, said_at, text = "moment", source.ends_at, f"{source.summary}\n{source.detail}"
    elif isinstance(source, StoredItem):
        kind, said_at, text = "item", source.created_at, source.text
    else:
        kind, said_at, text = "turn", source.created_at, source.spoken
    text = text.strip()
    return Text(kind, source.pk, source.user_id, said_at, text) if text else None


# --- claim ---


def _turns_of(job: Job, session: Session, model: EmbeddingModel, size: int) -> EmbedInput | Skipped:
    """Read the turns after the last processed one, and rejected turns that are due. Skip turns that have a vector."""
    own = {"session": session, "user_id": session.user_id}
    after = without_vector("turn", model).filter(**own, sequence__gt=session.embedded_sequence)
    waiting = list(after.order_by("sequence")[: size + 1])
    turns, is_cut = waiting[:size], len(waiting) > size
    again = list(
        _due_again("turn", model).filter(**own, sequence__lte=session.embedded_sequence)[: size + 1 - len(turns)]
    )
    if not (turns or again):
        return Skipped("every turn already has a vector")
    last = turns[-1].sequence if is_cut else session.last_sequence
    batch = [*turns, *again][:size]
    is_cut |= len(batch) < len(turns) + len(again)
    return EmbedInput(None, job, model, texts_of(batch), session, last, is_cut)


def _memories_of(job: Job, model: EmbeddingModel, size: int) -> EmbedInput | Skipped:
    waiting: list[Any] = []
    for kind in ("fact", "moment", "item") if job.user_id else ("fact",):
        room = size + 1 - len(waiting)
        waiting += without_vector(kind, model).filter(**owner_arguments(job))[:room]
    texts = texts_of(waiting[:size])
    is_cut = len(waiting) > len(texts)
    return EmbedInput(None, job, model, texts, is_cut=is_cut) if texts else Skipped("every text already has a vector")


# --- writing ---


def save_received(model: EmbeddingModel, made: Vectors, job: Job | None = None) -> int:
    """Write the vectors and rejections that the endpoint returned, in a transaction of their own.

    Args:
        job: the job of the run, if the texts are memories.

    Returns:
        The number of texts that still exist unchanged.

    Raises:
        ClaimLost: another worker took over the job, or the job was canceled.
    """
    with transaction.atomic():
        UserProfile.objects.hold({text.user_id for text, _vector in made if text.user_id is not None})
        if job and not job.is_claimed(waits=False):
            raise ClaimLost
        return write(model, made)


@transaction.atomic
def write(model: EmbeddingModel, made: Vectors) -> int:
    """Write the vectors and rejections of texts that still exist unchanged.

    Returns:
        The number of these texts.
    """
    by_owner: dict[tuple[str, int | None], dict[int, tuple[Text, list[float] | str]]] = defaultdict(dict)
    for text, vector in made:
        by_owner[text.kind, text.user_id][text.pk] = (text, vector)
    # Write in a fixed order, to prevent deadlocks.
    owners = sorted(by_owner, key=lambda owner: (owner[0], owner[1] or 0))
    return sum(_write_of(*owner, model, by_owner[owner]) for owner in owners)


def _write_of(
    kind: str, user_id: int | None, model: EmbeddingModel, made: dict[int, tuple[Text, list[float] | str]]
) -> int:
    """Write the results for texts of one kind, either of one person or without a person.

    Each call covers one person, because one query can't lock rows of several people in a distributed table.
    """
    there = _SOURCES[kind]().filter(user_id=user_id, pk__in=made).select_for_update(no_key=True, of=("self",))
    order = ("namespace", "key") if kind == "item" else ("pk",)  # as in `StoredItemQuerySet.put`, to avoid deadlocks
    now = texts_of(list(there.order_by(*order)))
    same = [made[text.pk] for text in now if made[text.pk][0] == text]
    return _keep(KINDS[kind].objects.filter(user_id=user_id, model=model), model, same)


def _keep(own: QuerySet[Any], model: EmbeddingModel, made: Vectors) -> int:
    """Write the vectors and rejections of locked rows. A rejection never replaces a vector.

    Args:
        own: the owner's existing vectors of the model.
        model: the model that created the vectors.
        made: the results for texts of one kind and owner.
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
