"""Rows for the pages of the extra `oauth`."""

from datetime import timedelta

from django.utils import timezone

from memory_extras.oauth.models import Assistant, Consent
from sessions_app.models import Session


def furnish(session: Session) -> None:
    """Register an assistant with a grant of the session's person."""
    assistant = Assistant.objects.register("Claude", ["https://claude.example.com/back"], registered_itself=True)
    ends_at = timezone.now() + timedelta(days=30)
    Consent.objects.allow(assistant, user=session.user, scopes=["read"], ends_at=ends_at, by="operator:eve")
