"""Operators, and the data that they see."""

import pytest

from moments_app.models import PromptResource
from moments_app.prompts import MOMENT_BUILDER_URI
from sessions_app.models import Session, UserProfile
from tests.support.jobs import build
from tests.support.kept_rows import KeptRows
from tests.support.transcript import talk


@pytest.fixture
def built(transactional_db: None, kept_rows: KeptRows) -> Session:
    """A session of 120 turns of Ada, the older of them in moments. Tests ask for it before other rows."""
    kept_rows.have("built", lambda: build(talk(UserProfile.objects.ensure("ada"), 120)))
    return Session.objects.get(session_id="s1")


@pytest.fixture
def prompt(transactional_db: None) -> PromptResource:
    return PromptResource.objects.get(uri=MOMENT_BUILDER_URI)
