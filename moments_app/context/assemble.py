"""Assemble a context: the memory that a model needs before it answers, within a token budget.

The same data, query and budget always give the same text. No engine is called. Layers that rarely change are cached for
a few minutes, or until the stamp of the input changes.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from django.conf import settings
from django.db import connection
from django.utils import timezone

from moments_app.context.budget import FilledBudget, Trimmed, fill_budget
from moments_app.context.input import LAYER_CACHE, ContextInput, Item, read_input
from moments_app.context.layers import ALWAYS, LAYERS, default_layers
from moments_app.context.receipts import ServedRecord, StoredContext, StoredLayer, StoredLine, add_receipt
from moments_app.context.render import FORMATS, PricedItem, Rendered
from moments_app.models import ContextReceipt
from moments_app.models.atom import ATOMS
from moments_app.recall.query import recall_request_for
from moments_app.recall.request import RecallRequest
from moments_app.turns.platform_text import note_served
from sessions_app.database.deferred import WriteBuffer
from sessions_app.database.sql import EPOCH
from sessions_app.models import Session, UserProfile
from sessions_app.models.session import new_context_id
from sessions_app.row_security import acting_for
from sessions_app.signals import digest_wanted

PLANS = ("query", "stable")
_BARE_TURN = Item("", role="user", time=EPOCH)
# Primary key of sessions and people that don't exist yet. Queries with it find nothing.
NO_ROW = 0
# Lock the rows in order, to prevent deadlocks between processes.
_COUNT_SQL = """
WITH accessed AS (SELECT unnest(%s::uuid[]) AS atom_id, unnest(%s::timestamptz[]) AS at),
counted AS (SELECT atom_id, count(*) AS times, max(at) AS latest FROM accessed GROUP BY atom_id),
locked AS (
    SELECT id, times, latest FROM moments_app_memoryatom atom JOIN counted USING (atom_id)
    ORDER BY id FOR NO KEY UPDATE OF atom
)
UPDATE moments_app_memoryatom atom SET access_count = access_count + times, last_accessed_at = latest
FROM locked WHERE atom.id = locked.id
"""


@dataclass(frozen=True)
class ContextRequest:
    query: str = ""  # the current message
    max_tokens: int | None = None  # the budget; default and maximum: `MEMORY_CONTEXT__MAX_TOKENS`
    format: str = "xml"  # a key of `FORMATS`
    # in any order; policy and query are always included
    layers: Sequence[str] = field(default_factory=default_layers)
    refresh: bool = False  # rebuild cached layers
    recall: RecallRequest | None = None  # None: no search
    # One of `PLANS`. With `query`, search results get at least half of the budget. With `stable`, the text doesn't
    # depend on the query and stays the same until memory changes, so that providers' prompt caches cover most of it.
    plan: str = "query"
    sent: Sequence[str] = ()  # texts that the caller sends to the model anyway; the context does not repeat them
    results: Sequence[str] = ()  # ids of the tool calls whose results the caller sends to the model
    # sequence number of the query's own turn, if it is already in the session; this turn and later ones are excluded
    before: int | None = None
    new_agent_id: str = ""  # agent of a session that has not started; if blank, the session must exist
    is_trial: bool = False  # the data will be rolled back, so the cache of layers is not used
    # include only facts that were known to be valid at this time
    as_of: datetime | None = None

    @property
    def applied(self) -> int:
        """The budget in tokens."""
        most = settings.MEMORY_CONTEXT.max_tokens
        return min(self.max_tokens or most, most)


@dataclass(frozen=True)
class Envelope:
    """A context and how it was built."""

    context_id: uuid.UUID  # also the id of its receipt
    input: ContextInput
    request: ContextRequest
    filled: FilledBudget
    context: Rendered
    has_partition_event: bool  # whether moments replace an older part of the session
    cached: bool  # whether the static layers came from the cache

    @property
    def trimmed(self) -> Sequence[Trimmed]:
        return self.filled.trimmed

    @property
    def checkpoint(self) -> int | None:
        """The sequence number of the boundary whose checkpoint is in the context, or None."""
        addresses = f"rem://sessions/{self.input.session.session_id}/messages/"
        items = [priced.item for priced in self.filled.layers.get("moments", ())]
        boundaries = [item for item in items if item.ref.startswith(addresses)]
        return boundaries[0].source_sequences[1] if boundaries and boundaries[0].source_sequences else None


def serve(envelope: Envelope) -> None:
    """Record that a context was served: its lines, its receipt, and the facts retrieved for it.

    A session that has not started gets no receipt. For an unknown person, nothing is recorded.
    """
    if envelope.input.user.pk == NO_ROW:
        return
    _note_lines(envelope)
    if envelope.input.session.pk != NO_ROW:
        application, transcript_tokens = envelope.input.user.application_id, envelope.input.session.total_tokens
        served = ServedRecord(_receipt(envelope), stored_context(envelope), application, transcript_tokens)
        add_receipt(served)
    note_accesses(priced.item.ref for priced in envelope.filled.layers.get("retrieved", ()))


def _note_lines(envelope: Envelope) -> None:
    """Record the lines of a context in the background. If its text is blank (format `json`), record its items."""
    context, source = envelope.context, envelope.input
    items = [(name, priced.item) for name, layer in envelope.filled.layers.items() for priced in layer]
    texts = [context] if isinstance(context, str) else [message["content"] or "" for message in context]
    quoted = [item.text for name, item in items if _is_quote(name, item)]
    note_served(source.user, texts if context else [item.text for _name, item in items], quoted, source.query)


def _is_quote(layer: str, item: Item) -> bool:
    """Return whether an item quotes a turn. In the layer `moments`, message addresses belong to partition events."""
    return bool(item.role) or ("/messages/" in item.ref and layer != "moments")


def note_accesses(refs: Iterable[str]) -> None:
    """Count one access to each fact among these addresses, in the background."""
    if atoms := [ref.removeprefix(ATOMS) for ref in refs if ref.startswith(ATOMS)]:
        waiting_accesses.add((atoms, timezone.now().isoformat()))


def _write_accesses(batch: list[tuple[list[str], str]]) -> None:
    accessed = [(atom_id, at) for atoms, at in batch for atom_id in atoms]
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_SQL, [[atom_id for atom_id, _ in accessed], [at for _, at in accessed]])


waiting_accesses = WriteBuffer("fact-accesses", _write_accesses)


def preview(user: UserProfile, session_id: str, request: ContextRequest) -> Envelope | None:
    """Return the context of a session without recording anything.

    Return None if the user has no such session and the request has no `new_agent_id`.

    Raises:
        BudgetTooSmall: the policy and the query alone exceed the budget.
    """
    # minus one, because the tokens of the empty turn and those of its text may both be rounded up
    extra_tokens = max(FORMATS[request.format].tokens("hot_turns", _BARE_TURN) - 1, 0)
    source = read_input(
        user,
        session_id,
        request.query,
        request.applied,
        request.recall,
        before=request.before,
        extra_tokens=extra_tokens,
    )
    if source is None and request.new_agent_id:
        source = input_before_first_turn(user, session_id, request)
    if source is None:
        return None
    source = replace(source, results=frozenset(request.results))
    names = [name for name in LAYERS if name in {*request.layers, *ALWAYS}]
    if request.as_of:
        of_then = {name: ask(source, request.as_of) for name in names if (ask := LAYERS[name].items_as_of)}
        return _filled(source, request, of_then, cached=False)
    static, cached = _static_layers(source, request)
    layers = {name: static[name] if name in static else _dynamic_layer(name, source, request) for name in names}
    return _filled(source, request, layers, cached=cached)


def _filled(
    source: ContextInput, request: ContextRequest, layers: Mapping[str, Iterable[Item]], *, cached: bool
) -> Envelope:
    form = FORMATS[request.format]
    recalls = request.plan != "stable"
    is_whole = source.is_whole and request.as_of is None
    filled = fill_budget(layers, form, request.applied, is_whole=is_whole, recalls=recalls, sent=request.sent)
    context = form.render({name: [priced.item for priced in items] for name, items in filled.layers.items()})
    context_id = new_context_id(source.user, source.session.session_id)
    return Envelope(context_id, source, request, filled, context, source.session.live_from_sequence > 0, cached)


def _dynamic_layer(name: str, source: ContextInput, request: ContextRequest) -> Iterable[Item]:
    """Return the items of an uncached layer. With the plan `stable`, standing text ignores the query."""
    if request.plan == "stable" and LAYERS[name].ceiling:
        source = replace(source, query="")
    return LAYERS[name].items(source)


def _static_layers(source: ContextInput, request: ContextRequest) -> tuple[Mapping[str, Sequence[Item]], bool]:
    """Return the static layers, and whether they came from the cache."""
    session = source.session.pk
    is_cacheable = session != NO_ROW and not request.is_trial
    if is_cacheable and not request.refresh and (kept := LAYER_CACHE.get(session, source.stamp)):
        return kept, True
    built: dict[str, Sequence[Item]] = {
        name: list(layer.items(source)) for name, layer in LAYERS.items() if layer.is_static
    }
    if is_cacheable:
        LAYER_CACHE.put(session, source.stamp, built)
    return built, False


def _receipt(envelope: Envelope) -> ContextReceipt:
    filled, source = envelope.filled, envelope.input
    layers = {name: items for name, items in filled.layers.items() if items}
    return ContextReceipt(
        context_id=envelope.context_id,
        user_id=source.user.pk,
        session_id=source.session.pk,
        query_hash=_hash(source.query) if source.query else "",
        refs={name: [ref for priced in items for ref in priced.item.refs] for name, items in layers.items()},
        tokens={name: filled.tokens_of(name) for name in layers},
        trimmed=[vars(part) for part in filled.trimmed],
        text_hash=_hash(json.dumps(envelope.context)),
        after_sequence=source.session.last_sequence,
    )


def stored_context(envelope: Envelope) -> StoredContext:
    """Return a context as receipts store it and operators' pages show it."""
    filled, request = envelope.filled, envelope.request
    return StoredContext(
        query=request.query,
        format=request.format,
        plan=request.plan,
        applied=request.applied,
        tokens=filled.tokens,
        is_degraded=bool(request.recall and request.recall.degraded),
        layers=[
            StoredLayer(name, filled.tokens_of(name), stored_lines(items)) for name, items in filled.layers.items()
        ],
        context=envelope.context,
    )


def stored_lines(items: Sequence[PricedItem]) -> list[StoredLine]:
    return [
        StoredLine(item.text, priced.tokens, item.ref, priced.why, item.role, item.speaker, item.local_time)
        for priced in items
        for item in (priced.item,)
    ]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- before the first turn ---


def unknown_person(user_id: str, application: int) -> UserProfile:
    return UserProfile(pk=NO_ROW, user_id=user_id, application_id=application)


def input_before_first_turn(user: UserProfile, session_id: str, request: ContextRequest) -> ContextInput:
    """Return the input of a session that has not started: the person's memory, without turns."""
    began = user.updated_at or timezone.now()  # the last update instead of now, so that the context stays the same
    session = Session(
        pk=NO_ROW, user=user, session_id=session_id, agent_id=request.new_agent_id, last_activity_at=began
    )
    return ContextInput(user, session, request.query, request.applied, [], True, "", request.recall)


def serve_context(
    user_id: str | None, session_id: str, request: ContextRequest, *, application: int, retrieval: str
) -> Envelope | None:
    """Return the context of a session and save a receipt. Don't call it within a transaction.

    Return None if the person is unknown, or if the session doesn't exist and the request has no `new_agent_id`.

    Args:
        user_id: None for an unknown person.
        request: the request without `recall`, which this function adds.
        application: primary key of the person's application.
        retrieval: see `recall_request_for`.

    Raises:
        BudgetTooSmall: the policy and the query alone exceed the budget.
    """
    assemble = partial(assembled_context, user_id, application, session_id, request, retrieval)
    envelope = assemble()
    if envelope and envelope.input.session.wants_digest and request.as_of is None:
        digest_wanted.send(sender=Session, session=envelope.input.session)
        envelope = assemble()
    if envelope:
        serve(envelope)
    return envelope


def assembled_context(
    user_id: str | None, application: int, session_id: str, request: ContextRequest, retrieval: str
) -> Envelope | None:
    """Return the context of a session as `serve_context` does, but record nothing."""
    is_searched = "retrieved" in request.layers and request.plan != "stable"
    retrieval = retrieval if is_searched else "off"
    recall = recall_request_for(user_id, session_id, request.query, application=application, retrieval=retrieval)
    recall = replace(recall, as_of=request.as_of) if recall else None
    with acting_for(user_id, application=application) as user:
        if user is None and user_id is not None and request.new_agent_id:
            user = unknown_person(user_id, application)
        return preview(user, session_id, replace(request, recall=recall)) if user else None
