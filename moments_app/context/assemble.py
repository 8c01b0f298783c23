"""`assemble`: the memory that a model should have before it answers, within a number of tokens.

Deterministic: the same data, query and budget give the same text. No engine is called. What seldom changes is kept for
a few minutes and made anew as soon as the scene's stamp says that something did.
"""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.core.cache import cache

from moments_app.context import receipts, served
from moments_app.context.input import Scene, read_scene
from moments_app.context.item import Item
from moments_app.context.layers import ALWAYS, DEFAULT, LAYERS, ORDER
from moments_app.context.plan import BudgetTooSmall, Fitted, Trimmed, fit
from moments_app.context.render import FORMATS, Rendered
from moments_app.models import ContextReceipt
from moments_app.recall import accesses
from moments_app.recall.search import Question
from sessions_app.models import UserProfile

__all__ = ["PLANS", "BudgetTooSmall", "Envelope", "Wanted", "preview", "serve"]

PLANS = ("query", "stable")


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Args:
        query: the current message; may be blank.
        max_tokens: the budget; None is `MEMORY_CONTEXT__MAX_TOKENS`, which is also the most.
        format: a key of `FORMATS`.
        layers: names of those wanted, any order; policy and query are always there.
        refresh: make everything anew.
        question: what is looked for in memory; None: nothing.
        plan: one of `PLANS`: `query`: what answers the query has at least half of the budget; `stable`: the same text
            until memory changes, whatever is asked, so that providers' prompt caches serve nearly all of it.
        sent: texts that the caller gives the model anyway: they are not told again.
    """

    query: str = ""
    max_tokens: int | None = None
    format: str = "xml"
    layers: Sequence[str] = DEFAULT
    refresh: bool = False
    question: Question | None = None
    plan: str = "query"
    sent: Sequence[str] = ()

    @property
    def applied(self) -> int:
        """The budget that holds."""
        most = settings.MEMORY_CONTEXT.max_tokens
        return min(self.max_tokens or most, most)


@dataclass(frozen=True)
class Envelope:
    """A context with its accounts.

    Args:
        context_id: of its receipt.
        scene: it was made for.
        wanted: what was asked for.
        fitted: the layers as they fit, with what had to go.
        context: the text, or the messages, in the format asked for.
        has_partition_event: an older part of the session is remembered as moments.
        cached: the static layers were kept ones.
    """

    context_id: uuid.UUID
    scene: Scene
    wanted: Wanted
    fitted: Fitted
    context: Rendered
    has_partition_event: bool
    cached: bool

    @property
    def trimmed(self) -> Sequence[Trimmed]:
        return self.fitted.trimmed

    @property
    def checkpoint(self) -> int | None:
        """Sequence of the session's boundary whose checkpoint is in the context; None where none is."""
        addresses = f"rem://sessions/{self.scene.session.session_id}/messages/"
        items = [line.item for line in self.fitted.layers.get("moments", ()) if line.item.ref.startswith(addresses)]
        return items[0].source_sequences[1] if items and items[0].source_sequences else None


def serve(envelope: Envelope) -> None:
    """Note that a context is served: its lines, its receipt, and the facts that were retrieved for it."""
    served.note_context(envelope.scene.user, envelope.context, envelope.fitted.layers, envelope.scene.query)
    receipts.keep(_receipt(envelope))
    accesses.note(line.item.ref for line in envelope.fitted.layers.get("retrieved", ()))


def preview(user: UserProfile, session_id: str, wanted: Wanted) -> Envelope | None:
    """Return the context of a session. Nothing is noted of it until it is served.

    Returns:
        None when the user has no such session.

    Raises:
        BudgetTooSmall: policy and query alone exceed the budget.
    """
    scene = read_scene(user, session_id, wanted.query, wanted.applied, wanted.question)
    if scene is None:
        return None
    static, cached = _static_layers(scene, wanted.refresh)
    names = [name for name in ORDER if name in {*wanted.layers, *ALWAYS}]
    if "summary" in names and static["summary"] and static["summary"][0].source_sequences:
        scene = replace(scene, covered_to=static["summary"][0].source_sequences[1])
    layers = {name: static[name] if name in static else _dynamic(name, scene, wanted) for name in names}
    form = FORMATS[wanted.format]
    recalls = wanted.plan != "stable"
    fitted = fit(layers, form, wanted.applied, is_whole=scene.is_whole, recalls=recalls, sent=wanted.sent)
    context = form.render({name: [line.item for line in lines] for name, lines in fitted.layers.items()})
    return Envelope(uuid.uuid4(), scene, wanted, fitted, context, scene.session.live_from_sequence > 0, cached)


def _dynamic(name: str, scene: Scene, wanted: Wanted) -> Sequence[Item]:
    """A layer that is made each time; by the stable plan it knows nothing of the query."""
    if wanted.plan == "stable" and name == "entities":
        scene = replace(scene, query="")
    return LAYERS[name].items(scene)


def cache_key(session_pk: int) -> str:
    """Where the static layers of a session's contexts are kept; the number of a session is never given again."""
    return f"context:{session_pk}"


def _static_layers(scene: Scene, refresh: bool) -> tuple[dict[str, Sequence[Item]], bool]:
    """The layers that are the same until the stamp changes, and whether they were kept ones."""
    key = cache_key(scene.session.pk)
    kept = None if refresh else cache.get(key)
    if kept and kept[0] == scene.stamp:
        return kept[1], True
    made: dict[str, Sequence[Item]] = {name: list(layer.items(scene)) for name, layer in LAYERS.items() if layer.STATIC}
    if settings.MEMORY_CONTEXT.sync_minutes:
        cache.set(key, (scene.stamp, made), settings.MEMORY_CONTEXT.sync_minutes * 60)
    return made, False


def _receipt(envelope: Envelope) -> ContextReceipt:
    fitted, scene = envelope.fitted, envelope.scene
    return ContextReceipt(
        context_id=envelope.context_id,
        user_id=scene.user.pk,
        session_id=scene.session.pk,
        query_hash=_hash(scene.query) if scene.query else "",
        refs={
            name: [line.item.ref for line in lines if line.item.ref] for name, lines in fitted.layers.items() if lines
        },
        tokens={name: fitted.tokens_of(name) for name in fitted.layers if fitted.layers[name]},
        trimmed=[vars(part) for part in fitted.trimmed],
        text_hash=_hash(json.dumps(envelope.context)),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
