"""Models that have vectors: the list with the text above it, and the page of a model."""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from moments_app.models import EmbeddingModel, Job
from moments_app.recall import embed
from moments_app.recall.embed import Embed
from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.admin.views.base import FormPage, RowAction

COUNTED = 1_000  # jobs


class EmbeddingModelForm(FormPage[EmbeddingModel]):
    """The page of a model: how many texts have a vector of it."""

    before = "operator/embeddings/model.html"

    def context(self) -> dict[str, Any]:
        may_send = self.admin.has_steer_permission(self.request) and self.row.is_active
        return _progress(self.row) | {"may_send": may_send}


class SendRefused(RowAction[EmbeddingModel]):
    """Resend texts that the endpoint rejected."""

    route, name, permission = "<int:pk>/send-refused/", "send_refused", "steer"

    def change(self, model: EmbeddingModel) -> str:
        count = model.ask_refused_again()
        embed.ask_refused_again(self.actor)
        self.log(model, "Resent rejected texts.", f"{count:,} rejected texts are being resent.")
        return reverse("admin:moments_app_embeddingmodel_change", args=[model.pk])


def _progress(model: EmbeddingModel) -> dict[str, Any]:
    filled = embed.filled(model)
    refused = sum(row.refused for row in filled)
    return {
        "model": model,
        "filled": filled,
        "refused": refused,
        "refusals": embed.refusals(model) if refused else [],
    }


def embedding_state() -> dict[str, Any]:
    """Return whether texts are embedded, and what the model in use still has to embed."""
    model = EmbeddingModel.objects.active().first()
    return {
        "is_on": settings.EMBEDDING.is_on,
        **_jobs(),
        **(_progress(model) if model else {}),
    }


def _jobs() -> dict[str, int]:
    """Count open and failed jobs with one statement."""
    own = Job.objects.filter(process=Embed.name).order_by().values_list("status", flat=True)
    failed = own.filter(status=Job.Status.FAILED)[:COUNTED]
    found = list(own.filter(status__in=Job.OPEN)[:COUNTED].union(failed, all=True))
    return {"waiting": len(found) - found.count(Job.Status.FAILED), "failed": found.count(Job.Status.FAILED)}


@admin.register(EmbeddingModel)
class EmbeddingModelAdmin(ReadOnlyAdmin):
    """Read only: `manage.py embed` fills and switches models."""

    list_display = ("name", "dimensions", "is_active", "created_at")
    sortable_by = ()
    ordering = ("-id",)
    when_empty = "No embedding models yet. The first one appears when a text is embedded."
    list_before_template = "operator/embeddings/list.html"
    views = (SendRefused,)
    form_page = EmbeddingModelForm

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may change jobs to queue more of them."""
        return request.user.has_perm("moments_app.change_job")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Add the progress of the model in use to the list."""
        response: HttpResponse = super().changelist_view(request, (extra_context or {}) | embedding_state())
        return response
