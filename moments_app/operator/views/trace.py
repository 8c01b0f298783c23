"""The trace of one call: what the model saw, what it would see now, the difference, and the effects of the round."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.http import HttpRequest, HttpResponse

from moments_app.context.assemble import BudgetTooSmall, kept_context, preview
from moments_app.context.kept import KeptContext
from moments_app.context.layers import default_layers
from moments_app.context.request import ContextRequest
from moments_app.engines.answers import InvalidAnswer
from moments_app.engines.interface import EngineError
from moments_app.models import ContextReceipt, EngineCall, Job, MemoryAtom, Moment, Summary
from moments_app.operator.addresses import Pages
from moments_app.operator.as_of import AsOf
from moments_app.operator.ask_again import LineName, ask_again, can_ask_again
from moments_app.operator.context_view import BAR, shown_layers
from moments_app.operator.diff import word_diff
from moments_app.operator.rights import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.operator.trace import Round, moments_of, receipt_of, round_of, traced_layers, traced_markup
from moments_app.operator.views.session import SessionPage
from moments_app.recall.query import recall_request_for
from sessions_app.admin.views.base import may_see, number_in
from sessions_app.lexemes import QUERY_MAX_CHARS

FOLLOWED = 20  # of each kind that a round led to


class Trace(SessionPage):
    """One call, found by the turn in the URL."""

    route, name = "<int:pk>/trace/", "trace"
    needs = (PREVIEW_CONTEXT, *SEE_MEMORY)
    template_name = "operator/sessions/trace.html"

    @cached_property
    def round(self) -> Round:
        """The round to trace."""
        return round_of(self.row, self.number("turn"))

    @cached_property
    def receipt(self) -> ContextReceipt | None:
        """The receipt of the model's context."""
        return receipt_of(self.row, self.round) if may_see(self.request, ContextReceipt) else None

    def get_title(self) -> str:
        """Return the title of the page."""
        return f"Trace: {self.row}"

    @cached_property
    def as_of(self) -> AsOf:
        """The day for which memory is compared with the served context."""
        return AsOf.of(self.request)

    @cached_property
    def then(self) -> KeptContext | None:
        """The model's context, if it is stored."""
        return KeptContext.from_sealed(self.receipt.sealed, self.receipt.context_id) if self.receipt else None

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Ask again without the selected lines, and show both answers."""
        if not self.admin.has_change_permission(request, self.row):  # because the call costs money
            raise PermissionDenied
        model, names = request.POST.get("model", "").strip(), request.POST.getlist("line")
        if self.then is None or not model or not can_ask_again():
            return self.page(
                refused="Can't ask again: the context is no longer stored, or no chat model is configured."
            )
        try:
            said = ask_again(self.then, _lines_named(names), model=model)
        except (EngineError, InvalidAnswer) as error:
            return self.page(
                refused=str(error) or "The model's answer can't be read. Try again.", ticked=names, model=model
            )
        before = self.round.answer.content if self.round.answer else ""
        return self.page(said=said, parts=word_diff(before, said), ticked=names, model=model)

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
            "is_said": bool(self.round.context_id),
            "then": then,
            "now": now,
            "as_of": self.as_of,
            "problem": problem,
            "layers": layers,
            "markup": traced_markup(then, now),
            "are_both": len(contexts) == 2,
            "bars": {when: shown_layers(context.layers, pages, budget) for when, context in contexts.items()},
            "counts": {when: lines.count(when) for when in ("same", "then", "now")},
            "bar": BAR,
            "can_ask": bool(then and then.query and can_ask_again())
            and self.admin.has_change_permission(self.request, self.row),
            "model": self.round.model,
            **self._followed(),
        }

    def _now(self, then: KeptContext | None) -> tuple[KeptContext | None, str]:
        """Return the context that the same question would get now, or the reason why there is none."""
        question = self.round.question
        if question is None:
            return None, "There is no question before this turn."
        query = then.query if then else question.content[:QUERY_MAX_CHARS]
        plan = then.plan if then else "query"
        session = self.row
        recall = recall_request_for(
            session.user.user_id,
            session.session_id,
            query,
            application=session.application_pk,
            retrieval="query" if plan == "query" else "off",
        )
        wanted = ContextRequest(
            query=query,
            max_tokens=then.applied if then else None,
            format=then.format if then else "xml",
            layers=[layer.name for layer in then.layers] if then else default_layers(),
            plan=plan,
            before=question.sequence,
            as_of=self.as_of.time,
            recall=replace(recall, as_of=self.as_of.time) if recall else None,
        )
        try:
            envelope = preview(session.user, session.session_id, wanted)
        except BudgetTooSmall as error:
            return None, str(error)
        return (kept_context(envelope) if envelope else None), ""

    # --- the effects ---

    def _followed(self) -> dict[str, Any]:
        turns = [turn for turn in (self.round.question, self.round.answer) if turn]
        if not turns:
            return {}
        pks, last = [turn.pk for turn in turns], turns[-1].sequence
        summaries = Summary.objects.for_session(self.row).completed().filter(end_sequence__gte=last)
        atoms = self.row.atoms.filter(source_message_ids__overlap=pks).select_related("stream__user", "stream__session")
        jobs = list(self._jobs(turns[0].arrived_at))
        costs = [job.cost for job in jobs if job.cost is not None]
        return {
            "moments": moments_of(self.round) if may_see(self.request, Moment) else [],
            "summary": self.seen(summaries.filter(start_sequence__lte=last)).order_by("end_sequence", "id").first(),
            "atoms": self.seen(atoms).order_by("id")[:FOLLOWED] if may_see(self.request, MemoryAtom) else [],
            "jobs": jobs,
            "jobs_cost": sum(costs) if costs else None,
        }

    def _jobs(self, since: datetime) -> QuerySet[Any]:
        """Return the first job of each process that was queued since the question."""
        calls = EngineCall.objects.filter(job=OuterRef("pk")).order_by().values("job")
        first = Job.objects.filter(user_id=self.row.user_id, session=self.row, queued_at__gte=since)
        first = first.order_by("process", "queued_at", "id").distinct("process")
        return self.seen(first).annotate(cost=Subquery(calls.annotate(whole=Sum("cost_usd")).values("whole")))


def _lines_named(names: Iterable[str]) -> set[LineName]:
    """Return the layers and places of the selected lines."""
    parts = [name.rpartition(":") for name in names]
    numbers = [(layer, number_in(place)) for layer, _, place in parts]
    return {(layer, number) for layer, number in numbers if number is not None}
