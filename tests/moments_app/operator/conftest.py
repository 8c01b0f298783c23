"""Operators, and the data that they see."""

import pytest

from moments_app.models import Job, PromptResource
from moments_app.prompts import MOMENT_BUILDER_URI
from sessions_app.models import Session, UserProfile
from tests.support.jobs import build
from tests.support.transcript import talk


@pytest.fixture
def built(ada: UserProfile) -> Session:
    """A session of 120 turns, the older of them in moments."""
    session = talk(ada, 120)
    assert build(session).status == Job.Status.COMPLETED
    session.refresh_from_db()
    return session


@pytest.fixture
def prompt(transactional_db: None) -> PromptResource:
    return PromptResource.objects.get(uri=MOMENT_BUILDER_URI)
