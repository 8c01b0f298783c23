"""The trace of one model call: the question, the context from memory, the answer, and their effects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from itertools import dropwhile, takewhile
from uuid import UUID

from moments_app.context.kept import KeptContext, KeptLine
from moments_app.context.layers import LAYERS
from moments_app.models import ContextReceipt, Moment
from moments_app.models.engine_call import cost_of
from moments_app.operator.addresses import Pages
from moments_app.operator.context_view import ShownLayer, ShownLine
from sessions_app.models import Message, Session
from sessions_app.retention.read_archived import with_text
from sessions_app.transcript.append import CONTEXT_ID
from sessions_app.transcript.load import turns_around

ROUND = 30  # maximum turns of a round: a question, tool calls with their results, the answer
CLOCK = "now"  # the layer with the current time, which differs in each context
QUERY = "query"  # the layer that can't be left out of a question
SAME, THEN, NOW = "same", "then", "now"
KeyedLine = tuple[str, str, KeptLine]  # a key that equal lines share, and the line


# --- the round ---


@dataclass(frozen=True)
class Round:
    """A question and its answer.

    Args:
        question: the person's message; None if an answer has no question.
        answer: the turn that answers it; None if there is none yet.
    """

    question: Message | None
    answer: Message | None

    @property
    def context_id(self) -> UUID | None:
        """The id of the model's context, if the answer was stored with it."""
        said = self._metadata.get(CONTEXT_ID)
        try:
            return UUID(said) if isinstance(said, str) else None
        except ValueError:
            return None

    @property
    def seconds(self) -> float | None:
        """The seconds from the question to the answer."""
        if self.question is None or self.answer is None:
            return None
        return (self.answer.created_at - self.question.created_at).total_seconds()

    @property
    def model(self) -> str:
        """The model that answered, as its endpoint named it; blank if unknown."""
        return str(self._metadata.get("model", ""))

    @property
    def usage(self) -> tuple[int, int] | None:
        """The input and output tokens, if the endpoint reported them."""
        said = [self._metadata.get(name) for name in ("input_tokens", "output_tokens")]
        given, answered = (value if isinstance(value, int) else None for value in said)
        return None if given is None or answered is None else (given, answered)

    @property
    def cost(self) -> Decimal | None:
        """The cost of the answer in USD; None if its tokens or its price are unknown."""
        return cost_of(f"upstream:{self.model}", *self.usage) if self.usage else None

    @property
    def _metadata(self) -> dict[str, object]:
        return self.answer.metadata if self.answer and isinstance(self.answer.metadata, dict) else {}


def round_of(session: Session, sequence: int | None) -> Round:
    """Return the round of a turn; without a turn, the newest round.

    Args:
        session: the session to search.
        sequence: the sequence of the turn.
    """
    end = session.last_sequence if sequence is None else sequence
    found = with_text(session.user, turns_around(session, end, ROUND))
    before = [turn for turn in reversed(found) if turn.sequence <= end]
    asked = next((turn for turn in before if turn.role == Message.Role.USER), None)
    since = [turn for turn in before[::-1] if asked is None or turn.sequence > asked.sequence]
    after = [turn for turn in found if turn.sequence > end]
    is_said = sequence is not None and bool(before) and before[0].role == Message.Role.ASSISTANT
    return Round(asked, _answer(since if is_said else [*since, *after]))


def _answer(turns: Sequence[Message]) -> Message | None:
    """Return the assistant's last message before the next message of a user."""
    others = dropwhile(lambda turn: turn.role == Message.Role.USER, turns)
    of_round = list(takewhile(lambda turn: turn.role != Message.Role.USER, others))
    said = [turn for turn in of_round if turn.role == Message.Role.ASSISTANT]
    return next((turn for turn in reversed(said) if turn.content), said[-1] if said else None)


def moments_of(round_: Round) -> list[Moment]:
    """Return the moments of a round's turns, in order."""
    turns = [turn for turn in (round_.question, round_.answer) if turn]
    held = [turn.moment_id for turn in turns if turn.moment_id]
    own = Moment.objects.filter(user_id__in={turn.user_id for turn in turns}, pk__in=held)
    return list(own.defer("search_vector").order_by("first_sequence")) if held else []


def receipt_of(session: Session, round_: Round) -> ContextReceipt | None:
    """Return the receipt of the model's context.

    If the answer doesn't name it, return the last receipt between the question's previous message and the answer.
    """
    receipts = ContextReceipt.objects.for_session(session)
    if round_.context_id:
        return receipts.filter(context_id=round_.context_id).first()
    if round_.question is None or round_.answer is None:
        return None
    asked, answered = round_.question.sequence, round_.answer.sequence
    return receipts.filter(after_sequence__range=(asked - 1, answered - 1)).order_by("-id").first()


# --- then and now ---


@dataclass(frozen=True)
class TracedTokens:
    """Tokens in two contexts, for the page.

    Args:
        then, now: the tokens in each context; None if there is no such context.
    """

    then: int | None = None
    now: int | None = None

    def __bool__(self) -> bool:
        return bool(self.then or self.now)

    def __str__(self) -> str:
        if self.then is None:
            return f"{self.now} tokens now"
        return f"{self.then} tokens then" + ("" if self.now is None else f", {self.now} now")


@dataclass(frozen=True)
class TracedLayer(ShownLayer):
    """A layer of two contexts, with the lines of both.

    Args:
        size: the tokens of the layer.
        markup: the tokens of its headings and markup; the rest are those of its lines.
    """

    size: TracedTokens = TracedTokens()
    markup: TracedTokens = TracedTokens()


def traced_markup(then: KeptContext | None, now: KeptContext | None) -> TracedTokens:
    """Return the tokens that belong to no layer."""
    return TracedTokens(*(context.markup_tokens if context else None for context in (then, now)))


def traced_layers(then: KeptContext | None, now: KeptContext | None, pages: Pages) -> list[TracedLayer]:
    """Compare the layers of a served and a current context. Either may be missing."""
    return [layer for key in LAYERS if (layer := _traced(key, then, now, pages)).lines]


def _traced(key: str, then: KeptContext | None, now: KeptContext | None, pages: Pages) -> TracedLayer:
    lines = list(_compared(key, _lines(then, key), _lines(now, key), pages))
    size = TracedTokens(_tokens(then, key), _tokens(now, key))
    markup = TracedTokens(_markup_tokens(then, key), _markup_tokens(now, key))
    return TracedLayer(key, 0, lines=lines, size=size, markup=markup)


def _lines(context: KeptContext | None, key: str) -> list[KeyedLine]:
    layers = context.layers if context else []
    lines = [line for layer in layers if layer.name == key for line in layer.lines]
    return [(line.ref, "" if key == CLOCK else line.text, line) for line in lines]


def _tokens(context: KeptContext | None, key: str) -> int | None:
    if context is None:
        return None
    return sum(layer.tokens for layer in context.layers if layer.name == key)


def _markup_tokens(context: KeptContext | None, key: str) -> int | None:
    if context is None:
        return None
    return sum(layer.markup_tokens for layer in context.layers if layer.name == key)


def _compared(key: str, old: Sequence[KeyedLine], new: Sequence[KeyedLine], pages: Pages) -> Iterator[ShownLine]:
    before, after = ([line[:2] for line in lines] for lines in (old, new))
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        is_same = tag == "equal"
        for place, (ref, _, line) in enumerate(old[i:j], i):
            field = "" if key == QUERY else f"{key}:{place}"
            yield ShownLine(line, pages.of(ref), SAME if is_same else THEN, field)
        for ref, _, line in () if is_same else new[k:m]:
            yield ShownLine(line, pages.of(ref), NOW)
