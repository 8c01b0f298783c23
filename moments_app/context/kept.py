"""The stored form of a context: every line, and the source of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pydantic import TypeAdapter

from moments_app.context.render import Rendered
from sessions_app.security.encryption import seal, unseal


@dataclass
class KeptLine:
    """A line of a context with its displayed time; see `Item` and `PricedItem`.

    Like `Item`, it isn't frozen, for speed.
    """

    text: str
    tokens: int
    ref: str = ""
    why: str = ""
    role: str = ""
    speaker: str = ""
    time: datetime | None = None


@dataclass(frozen=True)
class KeptLayer:
    """A layer of a context, with the tokens of its lines and wrapping."""

    name: str
    tokens: int
    lines: list[KeptLine]

    @property
    def markup_tokens(self) -> int:
        """Return the tokens of headings and markup around the lines."""
        return self.tokens - sum(line.tokens for line in self.lines)


@dataclass(frozen=True)
class KeptContext:
    """A context that was served.

    Args:
        query, format, plan, applied: from the request; `applied` is the budget.
        tokens: the tokens of the context.
        is_degraded: whether memory was searched by words only.
        layers: the layers, in order.
        context: the rendered context.
    """

    query: str
    format: str
    plan: str
    applied: int
    tokens: int
    is_degraded: bool
    layers: list[KeptLayer]
    context: Rendered

    @property
    def markup_tokens(self) -> int:
        """Return the tokens of markup around the layers."""
        return self.tokens - sum(layer.tokens for layer in self.layers)

    def sealed(self, context_id: UUID) -> bytes:
        """Return the context encrypted for a receipt."""
        return seal(_KEPT.dump_json(self), str(context_id))

    @staticmethod
    def from_sealed(sealed: bytes | memoryview | None, context_id: UUID) -> "KeptContext | None":
        """Return the context that a receipt stores; None if it stores none or no key decrypts it."""
        opened = unseal(sealed, str(context_id)) if sealed else None
        return _KEPT.validate_json(opened) if opened else None

    def refs(self) -> Iterable[str]:
        """Return the addresses of its lines."""
        return (line.ref for layer in self.layers for line in layer.lines if line.ref)


_KEPT = TypeAdapter(KeptContext)
