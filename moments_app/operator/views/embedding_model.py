"""The page of an embedding model, and what stands before the list of them."""

from typing import Any

from django.conf import settings

from moments_app.models import EmbeddingModel, Job
from moments_app.recall import embed
from moments_app.recall.embed import Embed
from sessions_app.admin.views.base import FormPage

COUNTED = 1_000  # jobs


class EmbeddingModelForm(FormPage[EmbeddingModel]):
    """The page of a model: how many texts have a vector of it."""

    before = "operator/embeddings/model.html"

    def context(self) -> dict[str, Any]:
        return {"model": self.row, "filled": embed.filled(self.row)}


def embedding_state() -> dict[str, Any]:
    """Collect whether texts are embedded at all, and what the model in use still has to do."""
    model = EmbeddingModel.objects.active().first()
    return {
        "is_on": settings.EMBEDDING.is_on,
        "waiting": _jobs(*Job.OPEN),
        "failed": _jobs(Job.Status.FAILED),
        "model": model,
        "filled": embed.filled(model) if model else [],
    }


def _jobs(*states: str) -> int:
    return Job.objects.filter(process=Embed.name, status__in=states)[:COUNTED].count()
