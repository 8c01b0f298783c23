"""Checks for schemathesis: when the API may reject a request that matches its schema.

JSON Schema can't describe rules that combine several values (a minimum over its maximum, `after` with `before`) or that
depend on the data (a job that has not failed can't be retried). For each call, the OpenAPI schema lists the codes of
such errors. A response with one of these codes is not a mismatch. All other matching requests must be accepted. A 429
is always permitted, because the rate limit is checked before the request itself.
"""

import re
from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import missing_required_header, positive_data_acceptance

CODE = re.compile(r"^`(\w+)`: ", re.MULTILINE)


@schemathesis.check
def accepted_or_refused_as_described(ctx: Any, response: Any, case: Any) -> bool | None:
    """Fail if a matching request is rejected, unless with a code in the schema."""
    if _is_throttled(response, case):
        return None
    if response.status_code in (400, 422) and _codes(response) <= _described(case, response.status_code):
        return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def without_a_header_refused_as_described(ctx: Any, response: Any, case: Any) -> bool | None:
    """Fail if a call without its key gets any other response than the error for a missing key."""
    return None if _is_throttled(response, case) else missing_required_header(ctx, response, case)


def _is_throttled(response: Any, case: Any) -> bool:
    return response.status_code == 429 and case.operation.responses.find_by_status_code(429) is not None


def _codes(response: Any) -> set[str]:
    return {error["code"] for error in response.json()["errors"]}


def _described(case: Any, status: int) -> set[str]:
    """Return the error codes in the schema for a call and a status."""
    answer = case.operation.responses.find_by_status_code(status)
    return set(CODE.findall(answer.definition.get("description", ""))) if answer else set()
