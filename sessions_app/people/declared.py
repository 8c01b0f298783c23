"""The declarations of the transcript's personal data."""

from collections import Counter
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from pydantic import NonNegativeInt, StringConstraints

from sessions_app.models import (
    ApiKey,
    Archive,
    DailyLimit,
    DailyUsage,
    Event,
    Message,
    Session,
    UserProfile,
)
from sessions_app.people.export import messages
from sessions_app.people.export_format import File, Name, NotRestored
from sessions_app.people.import_user import SessionOfMessage, set_first_turns
from sessions_app.people.provenance import Provenance, declare


def _of_own_keys(model: type[DailyUsage | DailyLimit], *, not_exported: str, not_retracted: str) -> Provenance:
    """Declare a table whose rows refer to one of the person's API keys, but not to the person."""

    def rows(user: UserProfile) -> QuerySet[Any]:
        return model._base_manager.filter(key__user=user)

    def erase(user: UserProfile) -> None:
        rows(user).delete()

    def count(user: UserProfile) -> Counter[str]:
        return Counter({str(model._meta.verbose_name_plural): rows(user).count()})

    return Provenance(
        model,
        person="key__user",
        not_exported=not_exported,
        not_retracted=not_retracted,
        erase=erase,
        count_others=count,
    )


declare(
    Provenance(
        UserProfile,
        File(
            "profile",
            about="the person's profile",
            fields="user_id summary interests preferred_topics timezone metadata created_at updated_at",
            types={"user_id": Annotated[str, StringConstraints(min_length=1)]},
            is_restored=False,  # `import_user` restores the profile separately, before all other rows
        ),
        person="pk",
        not_retracted="it is derived from facts, and is updated when they change",
    ),
    Provenance(
        Session,
        File(
            "sessions",
            about="conversations",
            fields="session_id agent_id source title status message_count total_tokens last_sequence last_activity_at "
            "last_moment_message_idx built_message_count built_total_tokens weighted_tokens last_formation_sequence "
            "formed_message_count formed_weighted_tokens summarised_sequence live_from_sequence live_tokens legal_hold "
            "compact_on_request metadata created_at",
            columns=(Name("session_id"),),
            key=("session_id",),
        ),
        is_rewritten=True,
    ),
    Provenance(
        Message,
        File(
            "messages",
            about="all turns in the conversations, including archived ones. Turns with `retracted_at` were retracted",
            fields="session_id sequence kind role tool_name name content payload tokens external_id moment_key "
            "retracted_at created_at metadata",
            columns=(
                SessionOfMessage("session_id", "session", Session, "session_id"),
                NotRestored("moment_key", "moment__key"),
            ),
            types={"sequence": NonNegativeInt, "kind": Literal["turn", "partition"]},
            missing={"name": ""},
            lines=messages,
            at_end=set_first_turns,
        ),
        is_withdrawn=True,
        is_rewritten=True,
    ),
    Provenance(
        Event,
        File("events", about="events about this person", fields="type payload created_at", is_restored=False),
        person="user_pk",
        is_rewritten=True,
    ),
    Provenance(
        Archive,
        derived_from=("session", "first_sequence", "last_sequence"),
        not_exported="its turns are exported",
        not_retracted="archived turns are restored before they are retracted",
    ),
    Provenance(
        ApiKey,
        not_exported="it is a credential for this installation, and can't be shown again",
        not_retracted="it is not derived from turns",
    ),
    _of_own_keys(DailyUsage, not_exported="it counts the calls of a key", not_retracted="it contains only numbers"),
    _of_own_keys(DailyLimit, not_exported="an operator set it", not_retracted="it is not derived from turns"),
)
