"""Who owns imported conversations, and the reasons why a record is rejected."""

import json
from dataclasses import dataclass

from pydantic import ValidationError as ShapeError
from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import PublicIdField
from sessions_app.refusals import Refusal

REASON_MAX_CHARS = 300

_public_id = PublicIdField()


class CannotImport(Refusal):
    """A record, or what is said about all of them, can't be taken; the message says why."""


@dataclass(frozen=True)
class Owner:
    """The person and the agent of a file that names neither. Blank if the file does, or for the default agent."""

    user_id: str = ""
    agent_id: str = ""


def public_id(value: str) -> str:
    """Return an id as the API takes it.

    Raises:
        CannotImport: The API would refuse it; the text says why.
    """
    try:
        return str(_public_id.run_validation(value))
    except ValidationError as error:
        raise CannotImport(reason_of(error)) from None


def reason_of(error: Exception) -> str:
    """Return the reason for an error, without the file's text."""
    if isinstance(error, ShapeError):
        details = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors(include_input=False)]
        reason = "; ".join(details)
    elif isinstance(error, ValidationError):
        reason = json.dumps(error.detail, ensure_ascii=False)
    elif isinstance(error, RecursionError):
        reason = "It is nested too deeply."
    else:
        reason = str(error)
    return reason[:REASON_MAX_CHARS]
