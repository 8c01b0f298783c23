"""The owner of imported conversations, and the reasons why records are rejected."""

import json
from dataclasses import dataclass

from pydantic import ValidationError as ShapeError
from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import PublicIdField
from sessions_app.refusals import Refusal

REASON_MAX_CHARS = 300

_public_id = PublicIdField()


class CannotImport(Refusal):
    """A record, or the whole file, can't be imported. The message says why."""


@dataclass(frozen=True)
class Owner:
    """The person and the agent, for a file that names neither. A blank agent is the default one."""

    user_id: str = ""
    agent_id: str = ""


def public_id(value: str) -> str:
    """Return an id, validated as in the API.

    Raises:
        CannotImport: The id is not valid. The message says why.
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
