"""The lists of engine calls and of embedding models, the page of a call, and the costs of all calls."""

from collections.abc import Collection
from functools import cached_property, partial
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.cache import cache
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from moments_app.models import EmbeddingModel, EngineCall, Job, KeptExchange
from moments_app.models.job import title_of
from moments_app.operator.admin.job import TitleFilter
from moments_app.operator.person_pages import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.recall import embed, vectors
from moments_app.recall.embed import Embed
from moments_app.reports import cost
from sessions_app.admin.base import (
    MAX_FOUND,
    DaysFilter,
    ExactFilter,
    LogAdmin,
    NewestValuesFilter,
    ReadOnlyAdmin,
    time_cell,
)
from sessions_app.admin.links import change_url, column
from sessions_app.admin.views import FormPage, OperatorPage, RowAction
from sessions_app.database.several_servers import read_for_page
from sessions_app.limited_operators import scope_key
from sessions_app.templatetags.readable import in_words

KEPT_SECONDS = 300  # seconds to cache sums, because summing a month of calls takes a second
COUNTED = 1_000  # maximum jobs to count


class CallForm(FormPage[EngineCall]):
    """The page of a call. Operators who may read memory see the texts of a failed call."""

    before = "operator/calls/exchange.html"

    def context(self) -> dict[str, Any]:
        may_read = self.request.user.has_perms((PREVIEW_CONTEXT, *SEE_MEMORY))
        exchange = self._stored.exchange if self._stored and may_read else None
        return {"call": self.row, "is_stored": self._stored is not None, "exchange": exchange}

    def people(self) -> Collection[int]:
        return [self._stored.user_id] if self._stored else []

    @cached_property
    def _stored(self) -> KeptExchange | None:
        """The texts of the call, if it failed and they are stored."""
        return KeptExchange.objects.filter(call=self.row).first() if not self.row.ok else None


class SiteCost(OperatorPage):
    """The usage of calls by day, purpose, application, person and prompt; and the times of summaries."""

    route, name = "cost/", "cost"
    needs = ("moments_app.view_job",)
    template_name = "operator/calls/cost.html"
    title = f"Cost of the last {cost.DAYS} days"

    def context(self) -> dict[str, Any]:
        count = partial(read_for_page, self.request, cost.site_cost)
        counted: Any = cache.get_or_set(f"cost{scope_key()}", count, KEPT_SECONDS)
        return {"cost": counted, "newest": cost.SUMMARIES}


class OutcomeFilter(admin.SimpleListFilter):
    title, parameter_name = "outcome", "ok"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("1", "Answered"), ("0", "Failed")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(ok=self.value() == "1") if self.value() else queryset


class FailureKindFilter(TitleFilter):
    """Filters calls by kind of failure. Searches only failed calls, because these have an index."""

    title_of = staticmethod(in_words)

    def rows(self, model: Any) -> QuerySet[Any]:
        return EngineCall.objects.failed()

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        found: Any = super().queryset(request, queryset)
        return found.failed() if self.used_parameters else found


class PersonFilter(ExactFilter):
    """Filters calls by person, through the person's newest jobs, which have an index."""

    title, parameter_name, lookup = "user_id", "user_id", "pk__in"
    JOBS = 1_000

    def lookup_value(self, text: str) -> QuerySet[Any, int]:
        jobs = Job.objects.filter(user__user_id=text).order_by("-queued_at", "-id").values("pk")
        calls = EngineCall.objects.filter(job__in=jobs[: self.JOBS]).order_by("-pk")
        newest: QuerySet[Any, int] = calls.values_list("pk", flat=True)[:MAX_FOUND]
        return newest


@admin.register(EngineCall)
class EngineCallAdmin(LogAdmin):
    """Calls to a model. The page of a failed call shows its texts."""

    list_display = ("called_at", "purpose_title", "engine", "outcome", "tokens", "cost", "duration", "job_link")
    applications = ("job__user__application", "job__stream__application")
    list_filter = (
        OutcomeFilter,
        PersonFilter,
        ("created_at", DaysFilter),
        ("error_kind", FailureKindFilter),
        ("purpose", TitleFilter),
        ("engine", NewestValuesFilter),
    )
    list_before_template = "operator/calls/ways.html"
    ordering = ("-created_at", "-id")
    when_empty = "No model calls yet. Calls are listed here once a language model or an embeddings model is configured."
    list_select_related = ("job",)
    fieldsets = (
        (None, {"fields": (("called_at", "duration"), ("purpose_title", "engine"), ("outcome", "job_link"), "error")}),
        ("Usage", {"fields": (("tokens", "cost"), "prompt_version")}),
    )
    form_page = CallForm
    views = (SiteCost,)
    readonly_fields = ("called_at", "purpose_title", "outcome", "duration", "tokens", "cost", "job_link")
    called_at = column("created_at", "When", time_cell)
    purpose_title = column("purpose", "Purpose", title_of)

    @display(description="Outcome", label={"answered": "success", "failed": "danger"})  # type: ignore[untyped-decorator]
    def outcome(self, call: EngineCall) -> tuple[str, str]:
        return ("answered", "answered") if call.ok else ("failed", in_words(call.error_kind) or "failed")

    @admin.display(description="Tokens in, out")
    def tokens(self, call: EngineCall) -> str:
        if call.is_part:
            return "in a combined call"
        numbers = [f"{tokens:,}" if tokens is not None else "–" for tokens in (call.input_tokens, call.output_tokens)]
        return format_html('<span class="rem-op-time">{}</span>', ", ".join(numbers))

    @admin.display(description="Duration")
    def duration(self, call: EngineCall) -> str:
        return f"{call.latency_ms / 1000:,.1f} s"

    @admin.display(description="Cost, USD")
    def cost(self, call: EngineCall) -> str:
        return "–" if call.cost_usd is None else f"{call.cost_usd:f}"

    @admin.display(description="Job")
    def job_link(self, call: EngineCall) -> str:
        if call.job is None:
            return "–"
        link = '<a class="rem-link" href="{}" title="{}">{}</a>'
        return format_html(link, change_url(call.job), call.job.process, call.job.title)


class EmbeddingModelForm(FormPage[EmbeddingModel]):
    """The page of an embedding model: how many texts have a vector from it."""

    before = "operator/embeddings/model.html"

    def context(self) -> dict[str, Any]:
        may_send = self.admin.has_steer_permission(self.request) and self.row.is_active
        return _progress(self.row) | {"may_send": may_send}


class ResendRejected(RowAction[EmbeddingModel]):
    """Resend texts that the endpoint rejected."""

    route, name, permission = "<int:pk>/send-refused/", "send_refused", "steer"

    def change(self, model: EmbeddingModel) -> str:
        count = model.retry_refused()
        embed.resend_rejected(self.actor)
        self.log(model, "Resent rejected texts.", f"{count:,} rejected texts are being resent.")
        return change_url(model)


def _progress(model: EmbeddingModel) -> dict[str, Any]:
    progress = vectors.embedding_progress(model)
    refused = sum(row.refused for row in progress)
    return {
        "model": model,
        "filled": progress,
        "refused": refused,
        "refusals": vectors.rejection_errors(model) if refused else [],
    }


@admin.register(EmbeddingModel)
class EmbeddingModelAdmin(ReadOnlyAdmin):
    """Read only: `manage.py embed` fills and switches models."""

    list_display = ("name", "dimensions", "is_active", "created_at")
    sortable_by = ()
    ordering = ("-id",)
    when_empty = "No embedding models yet. The first one appears when a text is embedded."
    list_before_template = "operator/embeddings/list.html"
    views = (ResendRejected,)
    form_page = EmbeddingModelForm
    steer_permission = "moments_app.change_job"

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        active = EmbeddingModel.objects.active().first()
        return {"is_on": settings.EMBEDDING.is_on} | _jobs() | (_progress(active) if active else {})


def _jobs() -> dict[str, int]:
    jobs = Job.objects.filter(process=Embed.name).order_by().values_list("status", flat=True)
    failed = jobs.filter(status=Job.Status.FAILED)[:COUNTED]
    found = list(jobs.filter(status__in=Job.OPEN)[:COUNTED].union(failed, all=True))
    return {"waiting": len(found) - found.count(Job.Status.FAILED), "failed": found.count(Job.Status.FAILED)}
