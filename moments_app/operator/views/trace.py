"""The trace of one call: what the model saw, what it would see now, the difference, and the effects of the round.

The operator can ask the model again without some lines of memory, to see whether the answer depends on them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from difflib import SequenceMatcher
from functools import cached_property
from itertools import dropwhile, takewhile
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.http import HttpRequest, HttpResponse

from moments_app.context.assemble import ContextRequest, stored_context
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.input import Item
from moments_app.context.layers import LAYERS, default_layers
from moments_app.context.receipts import StoredContext, StoredLayer, StoredLine
from moments_app.context.render import FORMATS
from moments_app.engines.answers import InvalidAnswer
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.models import ContextReceipt, EngineCall, Job, Moment, Summary
from moments_app.models.engine_call import TRIAL, cost_of
from moments_app.operator.addresses import Pages
from moments_app.operator.diff import word_diff
from moments_app.operator.person_pages import PREVIEW_CONTEXT, SEE_MEMORY, AsOf
from moments_app.operator.views.context import BAR, ShownLayer, ShownLine, assemble_context, shown_layers
from moments_app.operator.views.session import SessionPage
from sessions_app.admin.views import may_see, parse_number
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models import Message, Session
from sessions_app.retention.read_archived import with_text
from sessions_app.transcript.append import CONTEXT_ID
from sessions_app.transcript.load import turns_around

ROUND = 30  # maximum turns of a round: a question, tool calls with their results, the answer
CLOCK = "now"  # the layer with the current time, which differs in each context
QUERY = "query"  # the layer with the question; it can't be left out
KeyedLine = tuple[str, str, StoredLine]  # address and text, which are equal for unchanged lines; and the line
LineName = tuple[str, int]  # the layer of a line, and the line's index in the layer
EFFECTS_SHOWN = 20  # maximum rows of each kind among the effects of a round
ASK_SECONDS = 60.0
ANSWER_BYTES = 1_000_000


# --- the round ---


@dataclass(frozen=True)
class Round:
    """A question and its answer.

    Args:
        question: the person's message; None if the answer has no question.
        answer: the turn that answers it; None if there is no answer yet.
    """

    question: Message | None
    answer: Message | None

    @property
    def context_id(self) -> UUID | None:
        """The id of the model's context, if the answer was stored with this id."""
        reported = self._metadata.get(CONTEXT_ID)
        try:
            return UUID(reported) if isinstance(reported, str) else None
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
        """The model that answered, as reported by the endpoint; blank if unknown."""
        return str(self._metadata.get("model", ""))

    @property
    def usage(self) -> tuple[int, int] | None:
        """The input and output tokens, if the endpoint reported them."""
        tokens_in, tokens_out = self._metadata.get("input_tokens"), self._metadata.get("output_tokens")
        return (tokens_in, tokens_out) if isinstance(tokens_in, int) and isinstance(tokens_out, int) else None

    @property
    def cost(self) -> Decimal | None:
        """The cost of the answer in USD; None if its tokens or its price are unknown."""
        return cost_of(f"upstream:{self.model}", *self.usage) if self.usage else None

    @property
    def _metadata(self) -> dict[str, object]:
        return self.answer.metadata if self.answer and isinstance(self.answer.metadata, dict) else {}


def round_of(session: Session, sequence: int | None) -> Round:
    """Return the round of the turn with this sequence number, or the newest round if it is None."""
    end = session.last_sequence if sequence is None else sequence
    found = with_text(session.user, turns_around(session, end, ROUND))
    before = [turn for turn in reversed(found) if turn.sequence <= end]
    question = next((turn for turn in before if turn.role == Message.Role.USER), None)
    since = [turn for turn in before[::-1] if question is None or turn.sequence > question.sequence]
    after = [turn for turn in found if turn.sequence > end]
    is_of_assistant = sequence is not None and bool(before) and before[0].role == Message.Role.ASSISTANT
    return Round(question, _answer(since if is_of_assistant else [*since, *after]))


def _answer(turns: Sequence[Message]) -> Message | None:
    """Return the assistant's last message before the next message of a user."""
    others = dropwhile(lambda turn: turn.role == Message.Role.USER, turns)
    of_round = list(takewhile(lambda turn: turn.role != Message.Role.USER, others))
    answers = [turn for turn in of_round if turn.role == Message.Role.ASSISTANT]
    return next((turn for turn in reversed(answers) if turn.content), answers[-1] if answers else None)


def receipt_of(session: Session, round_: Round) -> ContextReceipt | None:
    """Return the receipt of the model's context.

    If the answer has no context id, return the last receipt saved before the answer, unless it is older than the
    message before the question.
    """
    receipts = ContextReceipt.objects.for_session(session)
    if round_.context_id:
        return receipts.filter(context_id=round_.context_id).first()
    if round_.question is None or round_.answer is None:
        return None
    turns = (round_.question.sequence - 1, round_.answer.sequence - 1)
    return receipts.filter(after_sequence__range=turns).order_by("-id").first()


# --- then and now ---


@dataclass(frozen=True)
class TracedTokens:
    """Numbers of tokens in the served and the current context.

    Args:
        then, now: the tokens in each context; None if that context doesn't exist.
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
    """A layer of the served and the current context, with the lines of both.

    Args:
        size: the tokens of the layer.
        markup: the tokens of the layer's headings and markup. The remaining tokens are those of the lines.
    """

    size: TracedTokens = TracedTokens()
    markup: TracedTokens = TracedTokens()


def traced_layers(then: StoredContext | None, now: StoredContext | None, pages: Pages) -> list[TracedLayer]:
    """Compare the layers of a served and a current context. Either may be missing."""
    return [layer for key in LAYERS if (layer := _traced(key, then, now, pages)).lines]


def _traced(key: str, then: StoredContext | None, now: StoredContext | None, pages: Pages) -> TracedLayer:
    lines = list(_compared(key, _lines(then, key), _lines(now, key), pages))
    size, markup = (
        TracedTokens(*(_sum(context, key, tokens) for context in (then, now)))
        for tokens in (attrgetter("tokens"), attrgetter("markup_tokens"))
    )
    return TracedLayer(key, 0, lines=lines, size=size, markup=markup)


def _lines(context: StoredContext | None, key: str) -> list[KeyedLine]:
    layers = context.layers if context else []
    lines = [line for layer in layers if layer.name == key for line in layer.lines]
    return [(line.ref, "" if key == CLOCK else line.text, line) for line in lines]


def _sum(context: StoredContext | None, key: str, tokens: Callable[[StoredLayer], int]) -> int | None:
    return None if context is None else sum(tokens(layer) for layer in context.layers if layer.name == key)


def _compared(key: str, old: Sequence[KeyedLine], new: Sequence[KeyedLine], pages: Pages) -> Iterator[ShownLine]:
    before, after = ([line[:2] for line in lines] for lines in (old, new))
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        is_same = tag == "equal"
        for place, (ref, _, line) in enumerate(old[i:j], i):
            field = "" if key == QUERY else f"{key}:{place}"
            yield ShownLine(line, pages.source(ref), "same" if is_same else "then", field)
        for ref, _, line in () if is_same else new[k:m]:
            yield ShownLine(line, pages.source(ref), "now")


# --- asking again ---


def can_ask_again() -> bool:
    return bool(settings.CHAT.upstream_base_url)


def ask_again(context: StoredContext, left_out: Collection[LineName], *, model: str) -> str:
    """Send a context without some of its lines to the upstream model, and return the answer.

    Raises:
        EngineError: the model did not answer.
        InvalidAnswer: the answer can't be parsed.
    """
    from moments_app.engines.endpoint import Endpoint  # imported here because commands don't need the client

    chat = settings.CHAT
    endpoint = Endpoint(
        base_url=chat.upstream_base_url,
        path="/chat/completions",
        api_key=chat.upstream_api_key.get_secret_value(),
        model=model,
        max_response_bytes=ANSWER_BYTES,
        record=_record,
    )
    seconds = min(ASK_SECONDS, chat.read_timeout_seconds)
    body = {"messages": _messages(context, left_out)}
    return endpoint.call(f"{TRIAL}trace", body, seconds=seconds, read=_text_of, refuses=lambda _: False)


def _record(call: CallRecord) -> None:
    EngineCall.objects.record(replace(call, exchange=None))


def _messages(context: StoredContext, left_out: Collection[LineName]) -> list[dict[str, str]]:
    memory = {
        layer.name: [_item(line) for place, line in enumerate(layer.lines) if (layer.name, place) not in left_out]
        for layer in context.layers
        if layer.name != QUERY
    }
    text = FORMATS["xml"].render(memory)
    return [{"role": "system", "content": str(text)}, {"role": "user", "content": context.query}]


def _item(line: StoredLine) -> Item:
    zone = line.time.tzinfo if line.time and line.time.tzinfo else UTC
    return Item(line.text, ref=line.ref, time=line.time, zone=zone, role=line.role, speaker=line.speaker)


def _text_of(answer: Any) -> str:
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise InvalidAnswer("", "it has no choices with a message.") from None
    if not isinstance(text, str) or not text:
        raise InvalidAnswer("", "it has no text.")
    return text


# --- the page ---


class Trace(SessionPage):
    """One call, found by the turn in the URL."""

    route, name = "<int:pk>/trace/", "trace"
    needs = (PREVIEW_CONTEXT, *SEE_MEMORY)
    template_name = "operator/sessions/trace.html"

    @cached_property
    def round(self) -> Round:
        return round_of(self.row, self.number("turn"))

    @cached_property
    def receipt(self) -> ContextReceipt | None:
        return receipt_of(self.row, self.round) if may_see(self.request, ContextReceipt) else None

    def get_title(self) -> str:
        return f"Trace: {self.row}"

    @cached_property
    def as_of(self) -> AsOf:
        """The day for which memory is compared with the served context."""
        return AsOf.of(self.request)

    @cached_property
    def then(self) -> StoredContext | None:
        """The model's context, if it is stored."""
        return StoredContext.from_sealed(self.receipt.sealed, self.receipt.context_id) if self.receipt else None

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Ask again without the selected lines, and show both answers."""
        if not self.admin.has_change_permission(request, self.row):  # the call costs money
            raise PermissionDenied
        model, names = request.POST.get("model", "").strip(), request.POST.getlist("line")
        if self.then is None or not model or not can_ask_again():
            return self.page(
                refused="Can't ask again: the context is no longer stored, or no chat model is configured."
            )
        try:
            answer = ask_again(self.then, _lines_named(names), model=model)
        except (EngineError, InvalidAnswer) as error:
            return self.page(
                refused=str(error) or "The model's answer can't be read. Try again.", selected=names, model=model
            )
        before = self.round.answer.content if self.round.answer else ""
        return self.page(parts=word_diff(before, answer), selected=names, model=model)

    def context(self) -> dict[str, Any]:
        receipt, then = self.receipt, self.then
        now, problem = self._now(then)
        contexts = {when: context for when, context in (("then", then), ("now", now)) if context}
        pages = Pages(self.row.user, {ref for context in contexts.values() for ref in context.refs()})
        budget = max((context.applied for context in contexts.values()), default=0)
        layers = traced_layers(then, now, pages)
        lines = [line.when for layer in layers for line in layer.lines]
        return super().context() | {
            "round": self.round,
            "receipt": receipt,
            "is_reported": bool(self.round.context_id),
            "then": then,
            "now": now,
            "as_of": self.as_of,
            "problem": problem,
            "layers": layers,
            "markup": TracedTokens(*(context.markup_tokens if context else None for context in (then, now))),
            "are_both": len(contexts) == 2,
            "bars": {when: shown_layers(context.layers, pages, budget) for when, context in contexts.items()},
            "counts": {when: lines.count(when) for when in ("then", "now")},
            "bar": BAR,
            "can_ask": bool(then and then.query and can_ask_again())
            and self.admin.has_change_permission(self.request, self.row),
            "model": self.round.model,
            **self._effects(),
        }

    def _now(self, then: StoredContext | None) -> tuple[StoredContext | None, str]:
        """Return the context that the same question would get now, or the reason why there is none."""
        question = self.round.question
        if question is None:
            return None, "There is no question before this turn."
        wanted = ContextRequest(
            query=then.query if then else question.content[:QUERY_MAX_CHARS],
            max_tokens=then.applied if then else None,
            format=then.format if then else "xml",
            layers=[layer.name for layer in then.layers] if then else default_layers(),
            plan=then.plan if then else "query",
            before=question.sequence,
            as_of=self.as_of.time,
        )
        try:
            envelope = assemble_context(self.row, wanted)
        except BudgetTooSmall as error:
            return None, str(error)
        return (stored_context(envelope) if envelope else None), ""

    def _effects(self) -> dict[str, Any]:
        turns = [turn for turn in (self.round.question, self.round.answer) if turn]
        if not turns:
            return {}
        pks, last = [turn.pk for turn in turns], turns[-1].sequence
        summaries = Summary.objects.for_session(self.row).completed().filter(end_sequence__gte=last)
        atoms = self.row.atoms.filter(source_message_ids__overlap=pks).select_related("stream__user", "stream__session")
        jobs = list(self._jobs(turns[0].arrived_at))
        costs = [job.cost for job in jobs if job.cost is not None]
        return {
            "moments": self.visible(self._moments(turns)),
            "summary": self.visible(summaries.filter(start_sequence__lte=last)).order_by("end_sequence", "id").first(),
            "atoms": self.visible(atoms).order_by("id")[:EFFECTS_SHOWN],
            "jobs": jobs,
            "jobs_cost": sum(costs) if costs else None,
        }

    def _moments(self, turns: Sequence[Message]) -> QuerySet[Moment]:
        own = Moment.objects.filter(user_id=self.row.user_id, pk__in=[turn.moment_id for turn in turns])
        return own.defer("search_vector").order_by("first_sequence")

    def _jobs(self, since: datetime) -> QuerySet[Any]:
        """For each process, return the first job queued since the question."""
        calls = EngineCall.objects.filter(job=OuterRef("pk")).order_by().values("job")
        first = Job.objects.filter(user_id=self.row.user_id, session=self.row, queued_at__gte=since)
        first = first.order_by("process", "queued_at", "id").distinct("process")
        return self.visible(first).annotate(cost=Subquery(calls.annotate(whole=Sum("cost_usd")).values("whole")))


def _lines_named(names: Iterable[str]) -> set[LineName]:
    """Parse the names of the selected lines: `layer:index`."""
    parts = [name.rpartition(":") for name in names]
    numbers = [(layer, parse_number(place)) for layer, _, place in parts]
    return {(layer, number) for layer, number in numbers if number is not None}
