"""What schemathesis is told of the API: when a request that fits its description may be refused all the same.

JSON Schema has no words for what values say together (a minimum over its maximum, `after` with `before`), nor for what
there is (a job that has not failed is not retried). The description names such refusals by their codes, for each call;
what is answered with one of these is no mismatch. All else that fits has to be accepted. Nor is a 429 one that the
description names: whoever asks often enough gets it before anything else is looked at, without a key soonest.
"""

import re
from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import missing_required_header, positive_data_acceptance

CODE = re.compile(r"^`(\w+)`: ", re.MULTILINE)


@schemathesis.check
def accepted_or_refused_as_described(ctx: Any, response: Any, case: Any) -> bool | None:
    """Fail where what fits is refused, unless by a code that the description names."""
    if _is_throttled(response, case):
        return None
    if response.status_code in (400, 422) and _codes(response) <= _described(case, response.status_code):
        return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def without_a_header_refused_as_described(ctx: Any, response: Any, case: Any) -> bool | None:
    """Fail where a call without its key is answered with anything but the refusal of that."""
    return None if _is_throttled(response, case) else missing_required_header(ctx, response, case)


def _is_throttled(response: Any, case: Any) -> bool:
    return response.status_code == 429 and case.operation.responses.find_by_status_code(429) is not None


def _codes(response: Any) -> set[str]:
    return {error["code"] for error in response.json()["errors"]}


def _described(case: Any, status: int) -> set[str]:
    """Return the codes of refusals that the description names for a call and a status."""
    answer = case.operation.responses.find_by_status_code(status)
    return set(CODE.findall(answer.definition.get("description", ""))) if answer else set()
