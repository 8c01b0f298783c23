"""Responses match the OpenAPI schema, for a few requests that schemathesis generates from it.

`make trust` sends thousands, with each kind of key.
"""

from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode

from drill.trust.accepted import accepted_or_refused_as_described, without_a_header_refused_as_described
from drill.trust.contract import REPLACED
from sessions_app.models import ApiKey, UserProfile
from tests.support.transcript import talk

pytestmark = [pytest.mark.slow(seconds=30), pytest.mark.django_db(transaction=True)]

# Without constants of our code, which `make trust` does not try either, and which take half of the time.
ONLY_SCHEMA = SchemathesisConfig.from_dict({"analysis": {"constants": {"enabled": False}}})
KINDS = [("", "admin"), ("ada", "write"), ("", "read")]  # of keys: the person and the scope


def test_every_call_conforms_to_the_schema(ada: UserProfile) -> None:
    talk(ada, 3)
    load_all_checks()
    checks = [check for check in CHECKS.get_all() if check.__name__ not in REPLACED.split(",")]
    assert {accepted_or_refused_as_described, without_a_header_refused_as_described} <= {*checks}
    kinds = [(person, _headers(ada if person else None, scope)) for person, scope in KINDS]
    described = {person: _described(headers) for person, headers in kinds[:2]}  # the third has the first's
    modes = list(GenerationMode)
    for number in range(len(described["ada"])):  # alternate kinds of keys, and valid with invalid input
        person, headers = kinds[number % len(kinds)]
        _ask(described[person][number], headers, modes[number % len(modes)], checks)


def _headers(person: UserProfile | None, scope: str) -> dict[str, str]:
    key = ApiKey.objects.issue("conformance", user=person, scope=scope)[1]
    return {"Authorization": f"Bearer {key}"}


def _described(headers: dict[str, str]) -> list[Any]:
    """Return the operations of the schema that this key gets."""
    site = get_wsgi_application()
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema", site, config=ONLY_SCHEMA, headers=headers)
    rest = schema.exclude(path_regex="^/v1/")  # WSGI doesn't serve the chat endpoint
    found: list[Any] = list(rest.get_all_operations())
    return [operation.ok() for operation in found]


def _ask(operation: Any, headers: dict[str, str], mode: GenerationMode, checks: list[Any]) -> None:
    @seed(1)
    @settings(
        max_examples=1,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(headers=headers, checks=checks)

    ask()
