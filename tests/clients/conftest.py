from collections.abc import Iterator

import pytest

from sessions_app.models import ApiKey
from tests.support.live import live_site


@pytest.fixture
def site(transactional_db: None) -> Iterator[str]:
    with live_site() as url:
        yield url


@pytest.fixture
def key(transactional_db: None) -> str:
    return ApiKey.objects.issue("application", scope=ApiKey.Scope.ADMIN)[1]
