"""The models whose vectors there are."""

from django.contrib import admin

from moments_app.models import EmbeddingModel
from sessions_app.admin.base import ReadOnlyAdmin


@admin.register(EmbeddingModel)
class EmbeddingModelAdmin(ReadOnlyAdmin):
    """Read only: `manage.py embed` fills and switches."""

    list_display = ("name", "dimensions", "is_active", "created_at")
    ordering = ("-id",)
