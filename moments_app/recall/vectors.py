"""Find texts without a vector, request their vectors from the embeddings endpoint, and store them.

An endpoint takes a few tenths of a second per batch, so several calls run in parallel. After one call fails, no further
call starts. Vectors of successful calls are saved, so their texts are not sent again. The calling thread records all
calls, because it has the database connection.
"""

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import BooleanField, Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet
from django.utils import timezone

from moments_app import engines
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.jobs.process import ClaimLost
from moments_app.models import EmbeddingModel, Job, MemoryAtom, Moment, StoredItem
from moments_app.models.embedding import KINDS, AnyEmbedding
from moments_app.turns.platform_text import drop_platform_text, is_only_platform_text
from sessions_app.models import Message, UserProfile

if TYPE_CHECKING:
    from moments_app.engines.embeddings import Embedder

MAX_ERRORS = 5  # maximum distinct error messages for the texts of each kind
HAS_VECTOR = ExpressionWrapper(Q(vector__isnull=False), output_field=BooleanField())
MAX_COUNTED = 10_000  # maximum texts of each kind to count; larger numbers are estimated
SPOKEN_ROLES = (Message.Role.USER, Message.Role.ASSISTANT)
HARMLESS_TEXT = "Good morning."

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Text:
    kind: str  # a key of `KINDS`
    pk: int
    user_id: int | None  # None for a shard's fact
    said_at: datetime
    text: str


# Texts with their vectors. For a rejected text, the endpoint's error replaces the vector.
Vectors = list[tuple[Text, list[float] | str]]


@dataclass
class ReceivedVectors:
    made: Vectors = field(default_factory=list)
    left: list[Text] = field(default_factory=list)
    # why some texts have no vector yet; of several errors, the one with the longest wait
    error: EngineError | None = None


def vectors_in_parallel(
    texts: Sequence[Text], embedder: "Embedder", progress: Callable[[int, int], object] = lambda done, total: None
) -> ReceivedVectors:
    """Return the vectors of texts. Sends `EMBEDDING__BATCH_SIZE` texts per call, and several calls in parallel."""
    size = settings.EMBEDDING.batch_size
    batches = deque(texts[start : start + size] for start in range(0, len(texts), size))
    threads = _BatchThreads(batches, embedder)
    threads.start(min(embedder.calls_at_once, len(batches)))
    answered = ReceivedVectors()
    for outcome in threads.outcomes():
        _collect(answered, outcome, embedder)
        progress(len(answered.made), len(texts))
    answered.left += [text for batch in batches for text in batch]
    return answered


@dataclass(frozen=True)
class _Outcome:
    batch: Sequence[Text]
    result: Vectors | Exception
    calls: list[CallRecord]


class _BatchThreads:
    """Threads that send one batch after another, until none is left or a call fails.

    They are daemon threads, so a worker can exit without waiting for the endpoint.
    """

    def __init__(self, batches: "deque[Sequence[Text]]", embedder: "Embedder") -> None:
        self._batches, self._embedder = batches, embedder
        self._outcomes: SimpleQueue[_Outcome | None] = SimpleQueue()
        self._has_failed = threading.Event()
        self._running = 0

    def start(self, number: int) -> None:
        self._running = number
        for _ in range(number):
            threading.Thread(target=self._work, name="embedding", daemon=True).start()

    def outcomes(self) -> Iterator[_Outcome]:
        """Yield the result of each batch. When the caller stops reading, no further batch starts."""
        try:
            while self._running:
                if (outcome := self._outcomes.get()) is None:
                    self._running -= 1
                else:
                    yield outcome
        finally:
            self._has_failed.set()

    def _work(self) -> None:
        try:
            while not self._has_failed.is_set():
                self._outcomes.put(self._request(self._batches.popleft()))
        except IndexError:
            pass  # another thread took the last batch
        finally:
            self._outcomes.put(None)

    def _request(self, batch: Sequence[Text]) -> _Outcome:
        calls: list[CallRecord] = []
        try:
            return _Outcome(batch, vectors_of(batch, self._embedder.recording(calls.append)), calls)
        except Exception as error:
            self._has_failed.set()
            return _Outcome(batch, error, calls)


def _collect(answered: ReceivedVectors, outcome: _Outcome, embedder: "Embedder") -> None:
    """Record the calls of a batch, and add its vectors. Raise errors that the endpoint did not cause."""
    for call in outcome.calls:
        # When parallel calls fail together, only the first failure says something new about the endpoint.
        embedder.record(replace(call, is_repeated_failure=answered.error is not None and bool(call.error_kind)))
    if isinstance(outcome.result, list):
        answered.made += outcome.result
        return
    if not isinstance(outcome.result, EngineError):
        raise outcome.result
    answered.left += outcome.batch
    if answered.error is None or (outcome.result.retry_after or 0) > (answered.error.retry_after or 0):
        answered.error = outcome.result


def vectors_of(texts: Sequence[Text], embedder: "Embedder") -> Vectors:
    """Return the vectors of texts. If the endpoint rejects a batch, retry each half to isolate the rejected texts.

    Raises:
        EngineError: the endpoint gave no valid answer.
    """
    if not texts:
        return []
    try:
        return list(zip(texts, embedder.embed([text.text for text in texts]), strict=True))
    except EngineError as error:
        if error.kind != "rejected":
            raise
        if len(texts) == 1:
            if not _accepts_texts(embedder):
                raise  # the endpoint rejects every text
            logger.warning("text refused by the embeddings endpoint", kind=texts[0].kind, pk=texts[0].pk)
            return [(texts[0], str(error))]
    middle = len(texts) // 2
    return vectors_of(texts[:middle], embedder) + vectors_of(texts[middle:], embedder)


def _accepts_texts(embedder: "Embedder") -> bool:
    """Return whether the endpoint accepts a harmless text."""
    try:
        embedder.embed([HARMLESS_TEXT])
    except EngineError as error:
        if error.kind == "rejected":
            return False
        raise
    return True


# --- texts without a vector ---


def kinds() -> list[str]:
    return [kind for kind in KINDS if settings.EMBEDDING.turns or kind != "turn"]


def batches(kind: str, model: EmbeddingModel) -> Iterator[list[Text]]:
    """Yield texts of a kind without a vector, ordered by primary key, in batches for parallel calls.

    Each text is yielded once, even if the endpoint rejects it.
    """
    after, size = 0, settings.EMBEDDING.batch_size * engines.MAX_CONCURRENT_CALLS
    while batch := list(without_vector(kind, model).filter(pk__gt=after)[:size]):
        after = batch[-1].pk
        if texts := texts_of(batch):
            yield texts


def without_vector(kind: str, model: EmbeddingModel) -> QuerySet[Any]:
    """Return rows of a kind without a vector of the model, by primary key.

    Rejected rows are included when they are due for a retry.
    """
    settled = Q(vector__isnull=False) | Q(ask_again_at__gt=timezone.now())
    there = KINDS[kind].objects.filter(settled, model=model, **_source_filter(kind))
    return _SOURCES[kind]().filter(~Exists(there)).order_by("pk")


def due_again(kind: str, model: EmbeddingModel) -> QuerySet[Any]:
    """Return rejected rows of a kind that are due for a retry. Uses the index of rejected vectors."""
    return _SOURCES[kind]().filter(Exists(KINDS[kind].objects.due_again(model).filter(**_source_filter(kind))))


def _source_filter(kind: str) -> dict[str, OuterRef]:
    """Return a filter for vectors that matches them to the row of the outer query (`OuterRef`).

    Distributed tables require a filter by person for turns. Other kinds have none, because some facts have no person.
    """
    return {"source_id": OuterRef("pk")} | ({"user_id": OuterRef("user_id")} if kind == "turn" else {})


@dataclass(frozen=True)
class EmbeddingProgress:
    """The progress of a model for one kind of text."""

    kind: str  # a key of `KINDS`
    vectors: int
    refused: int  # rejected by the endpoint on the latest attempt
    texts: int  # number of texts that can have a vector
    is_exact: bool  # False: `vectors` and `texts` are estimates of the query planner

    @property
    def waiting(self) -> int:
        return max(0, self.texts - self.vectors - self.refused)


def embedding_progress(model: EmbeddingModel) -> list[EmbeddingProgress]:
    """Return the progress of a model. Large numbers are estimated, because counting would take seconds."""
    refused = EmbeddingModel.objects.filter(pk=model.pk).refused_by_kind()
    return [_progress_of(kind, model, refused[kind]) for kind in kinds()]


def _progress_of(kind: str, model: EmbeddingModel, refused: int) -> EmbeddingProgress:
    own = KINDS[kind].objects.filter(model=model)
    if kind == "turn":  # archived turns keep their vectors but are no longer sources
        own = own.filter(source__kind=Message.Kind.TURN, user_id=F("source__user_id"))
    rows = own.filter(vector__isnull=False), _SOURCES[kind]()
    vectors, texts = map(_estimated_count, rows)
    if max(vectors, texts) <= MAX_COUNTED:
        vectors, texts = _counts(*rows)
    is_exact = max(vectors, texts) <= MAX_COUNTED
    return EmbeddingProgress(kind, min(vectors, texts), refused, texts, is_exact)


def _estimated_count(rows: QuerySet[Any]) -> int:
    """Return the query planner's estimate of the number of rows."""
    plan = json.loads(rows.explain(format="json"))[0]["Plan"]
    if "Distributed Query" not in plan:
        return int(plan["Plan Rows"])
    job = plan["Distributed Query"]["Job"]  # Citus explains only one task. All tasks read about as many rows.
    return int(job["Task Count"] * job["Tasks"][0]["Remote Plan"][0][0]["Plan"]["Plan Rows"])


def _counts(*rows: QuerySet[Any]) -> tuple[int, ...]:
    """Count the rows of several queries with one query. Stop each count at `MAX_COUNTED` + 1."""
    queries = [some[: MAX_COUNTED + 1].values("pk").query.sql_with_params() for some in rows]
    counts = ", ".join(f"(SELECT count(*) FROM ({sql}) counted)" for sql, _parameters in queries)  # noqa: S608 (ours)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {counts}", [value for _sql, parameters in queries for value in parameters])
        found: tuple[int, ...] = cursor.fetchone()
    return found


def rejection_errors(model: EmbeddingModel) -> list[str]:
    """Return the endpoint's errors for rejected texts. They contain no user text."""
    said = [kind.objects.refused(model).exclude(refusal="").values_list("refusal") for kind in KINDS.values()]
    return sorted({words for rows in said for (words,) in rows.distinct()[:MAX_ERRORS]})


def _facts() -> QuerySet[Any]:
    return MemoryAtom.objects.findable()


def _moments() -> QuerySet[Any]:
    return Moment.objects.defer("search_vector")


def _turns() -> QuerySet[Any]:
    spoken = Message.objects.turns().unretracted().filter(role__in=SPOKEN_ROLES).exclude(content="")
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


# --- writing ---


def save_received(model: EmbeddingModel, made: Vectors, job: Job | None = None) -> int:
    """Write the vectors and rejections that the endpoint returned, in a transaction of their own.

    Return the number of texts that still exist unchanged. `job` is the job of the run, if the texts are memories.

    Raises:
        ClaimLost: another worker took over the job, or the job was canceled.
    """
    with transaction.atomic():
        UserProfile.objects.protect({text.user_id for text, _vector in made if text.user_id is not None})
        if job and not job.is_claimed(waits=False):
            raise ClaimLost
        return write(model, made)


@transaction.atomic
def write(model: EmbeddingModel, made: Vectors) -> int:
    """Write the vectors and rejections of texts that still exist unchanged. Return the number of these texts."""
    by_owner: dict[tuple[str, int | None], dict[int, tuple[Text, list[float] | str]]] = defaultdict(dict)
    for text, vector in made:
        by_owner[text.kind, text.user_id][text.pk] = (text, vector)
    # Write in a fixed order, to prevent deadlocks.
    owners = sorted(by_owner, key=lambda owner: (owner[0], owner[1] or 0))
    return sum(_write_of_owner(*owner, model, by_owner[owner]) for owner in owners)


def _write_of_owner(
    kind: str, user_id: int | None, model: EmbeddingModel, made: dict[int, tuple[Text, list[float] | str]]
) -> int:
    """Write the results for texts of one kind that belong to the same person, or to no person.

    In a distributed table, a query can't lock rows of several people.
    """
    there = _SOURCES[kind]().filter(user_id=user_id, pk__in=made).select_for_update(no_key=True, of=("self",))
    order = ("namespace", "key") if kind == "item" else ("pk",)  # as in `StoredItemQuerySet.put`, to avoid deadlocks
    now = texts_of(list(there.order_by(*order)))
    same = [made[text.pk] for text in now if made[text.pk][0] == text]
    return _store(KINDS[kind].objects.filter(user_id=user_id, model=model), model, same)


def _store(own: QuerySet[Any], model: EmbeddingModel, made: Vectors) -> int:
    """Write the vectors and rejections of locked rows. A rejection never replaces a vector."""
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
