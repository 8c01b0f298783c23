"""Tasks, goals and problems that a client wrote."""

from typing import Any

from django.utils import timezone

from moments_app.models import Entity, MemoryStream
from moments_app.models.entity import status_columns
from sessions_app.models import UserProfile


def new_entity(user: UserProfile, title: str, kind: str = "task", *, status: str = "open", **fields: Any) -> Entity:
    """Return an entity that is not saved."""
    stream = MemoryStream.objects.ensure_list(user)
    return Entity.written(stream, title, kind=kind, **status_columns(status, timezone.now(), "key:abc"), **fields)


def make_entity(user: UserProfile, title: str, kind: str = "task", **fields: Any) -> Entity:
    entity = new_entity(user, title, kind, **fields)
    entity.save()
    return entity
