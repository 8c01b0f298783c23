"""Find the pages of the addresses in contexts and receipts."""

from collections.abc import Collection
from typing import Any

from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat
from django.urls import reverse

from moments_app.models import Entity, MemoryAtom, MemoryStream, Moment, PromptResource
from sessions_app.admin.links import change_url, page_url, turn_url
from sessions_app.models import Session, UserProfile

SESSIONS = "rem://sessions/"


# By the start of an address: the words for its row, which may contain the rest of the address.
NAMES = {
    "rem://moments/key/": "the moment {}",
    "rem://atoms/": "an item",
    "rem://streams/": "a memory text",
    "rem://users/": "the profile",
}


def name_of_source(ref: str) -> str:
    """Return the name of the row at an address, in words."""
    session, is_turn, sequence = ref.removeprefix(SESSIONS).rpartition("/messages/")
    if ref.startswith(SESSIONS) and is_turn:
        return f"turn {sequence} of {session}"
    named = (name.format(ref.removeprefix(start)) for start, name in NAMES.items() if ref.startswith(start))
    return next(named, ref)


class Pages:
    """Finds the page of an address. All addresses are looked up with one query.

    Args:
        user: the person for whom the addresses were written; addresses of shards belong to no person.
        refs: the addresses.
    """

    def __init__(self, user: UserProfile, refs: Collection[str]) -> None:
        self._refs, self._kinds = refs, 0
        self._sessions: dict[str, int] = {}
        self._urls = {user.uri: change_url(user)}
        theirs = Q(user=user) | Q(user=None)
        site, own = Q(application=None), Q(application=user.application_id)
        found = [
            self._rows("rem://moments/key/", Moment.objects.for_user(user), "key"),
            self._rows("rem://entities/", Entity.objects.for_user(user), "entity_id"),
            self._rows("rem://atoms/", MemoryAtom.objects.filter(theirs), "atom_id"),
            self._rows("rem://streams/", MemoryStream.objects.filter(theirs), "stream_id"),
            # The application's own prompts come last, so they replace the global ones.
            self._rows("", PromptResource.objects.filter(site), "uri", among="rem://prompts/"),
            self._rows("", PromptResource.objects.filter(own), "uri", among="rem://prompts/"),
            self._rows(SESSIONS, Session.objects.for_user(user), "session_id", wanted=self._named_sessions()),
        ]
        asked = [rows for rows in found if rows is not None]
        for _, label, ref, pk in sorted(asked[0].union(*asked[1:], all=True)) if asked else ():
            if ref.startswith(SESSIONS):
                self._sessions[ref.removeprefix(SESSIONS)] = pk
            else:
                self._urls[ref] = reverse(f"admin:{label}_change", args=[pk])

    def _named_sessions(self) -> set[str]:
        return {_session_id(ref) for ref in self._refs if ref.startswith(SESSIONS)}

    def _rows(
        self, prefix: str, rows: QuerySet[Any], field: str, *, among: str = "", wanted: Collection[str] | None = None
    ) -> QuerySet[Any, Any] | None:
        """Return the rows of a kind that addresses name, as (order, page, address, primary key), or None.

        Args:
            prefix: the prefix of their addresses.
            rows: the person's rows of this kind.
            field: the field that follows the prefix in an address.
            among: the start of the addresses, if the field has the whole address.
            wanted: values of the field; None: the text after the prefix.
        """
        if wanted is None:
            wanted = {ref.removeprefix(prefix) for ref in self._refs if ref.startswith(among or prefix)}
        if not wanted:
            return None
        options = rows.model._meta
        self._kinds += 1
        return (
            rows.filter(**{f"{field}__in": wanted})
            .order_by()
            .values_list(
                Value(self._kinds),
                Value(f"{options.app_label}_{options.model_name}"),
                Concat(Value(prefix), Cast(field, TextField()), output_field=TextField()),
                "pk",
            )
        )

    def of(self, ref: str) -> str:
        """Return the page of an address; blank if there is none or it was deleted."""
        pk = self._sessions.get(_session_id(ref)) if ref.startswith(SESSIONS) else None
        if pk is None:
            return self._urls.get(ref, "")
        if ref.endswith("/summary"):
            return page_url(Session, "summaries", pk)
        return turn_url(pk, int(ref.rsplit("/", 1)[1]))


def _session_id(ref: str) -> str:
    """Read the id from the address of a turn, or of a session's summary. The id may contain slashes."""
    path = ref.removeprefix(SESSIONS)
    return path.removesuffix("/summary") if path.endswith("/summary") else path.rsplit("/messages/", 1)[0]
