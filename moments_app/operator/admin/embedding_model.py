"""The models whose vectors there are, and how far each is."""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from moments_app.models import EmbeddingModel, Job
from moments_app.recall import embed
from sessions_app.admin.base import ReadOnlyAdmin

COUNTED = 1_000  # jobs


@admin.register(EmbeddingModel)
class EmbeddingModelAdmin(ReadOnlyAdmin):
    """Read only: `manage.py embed` fills and switches."""

    list_display = ("name", "dimensions", "is_active", "created_at")
    sortable_by = ()
    ordering = ("-id",)
    when_empty = "The first model appears when a text is embedded."
    list_before_template = "operator/embeddings/list.html"
    change_form_outer_before_template = "operator/embeddings/model.html"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Says whether texts are embedded at all, and what the one in use still has to do."""
        model = EmbeddingModel.objects.active().first()
        shown = {
            "is_on": settings.EMBEDDING.is_on,
            "waiting": _jobs(*Job.OPEN),
            "failed": _jobs(Job.Status.FAILED),
            "model": model,
            "filled": embed.filled(model) if model else [],
        }
        response: HttpResponse = super().changelist_view(request, (extra_context or {}) | shown)
        return response

    def around(self, request: HttpRequest, obj: EmbeddingModel) -> dict[str, Any]:
        """How far it is."""
        return {"model": obj, "filled": embed.filled(obj)}


def _jobs(*states: str) -> int:
    return Job.objects.filter(process=embed.NAME, status__in=states)[:COUNTED].count()
