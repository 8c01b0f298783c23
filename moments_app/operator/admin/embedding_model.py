"""The list of models that have vectors."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from moments_app.models import EmbeddingModel
from moments_app.operator.views.embedding_model import EmbeddingModelForm, SendRefused, embedding_state
from sessions_app.admin.base import ReadOnlyAdmin


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
