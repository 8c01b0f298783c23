"""The pages behind the addresses that contexts and receipts name."""

from collections.abc import Collection
from typing import Any

from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat
from django.urls import reverse

from moments_app.models import Entity, MemoryAtom, MemoryStream, Moment, PromptResource, Summary
from sessions_app.admin.links import change_url, page_url, turn_url
from sessions_app.models import Session, UserProfile

SESSIONS = "rem://sessions/"


class Pages:
    """Finds the page behind an address; two queries at most, however many addresses of however many kinds.

    Args:
        user: the person that the addresses were made for; those of shards are nobody's.
        refs: the addresses.
    """

    def __init__(self, user: UserProfile, refs: Collection[str]) -> None:
        self._refs, self._kinds = refs, 0
        self._urls = {user.uri: change_url(user)}
        theirs = Q(user=user) | Q(user=None)
        site, own = Q(application=None), Q(application=user.application_id)
        found = [
            self._rows("rem://moments/key/", Moment.objects.for_user(user), "key"),
            self._rows("rem://entities/", Entity.objects.for_user(user), "entity_id"),
            self._rows("rem://atoms/", MemoryAtom.objects.filter(theirs), "atom_id"),
            self._rows("rem://streams/", MemoryStream.objects.filter(theirs), "stream_id"),
            # What is the application's own comes last, in the place of the site's.
            self._rows("", PromptResource.objects.filter(site), "uri", among="rem://prompts/"),
            self._rows("", PromptResource.objects.filter(own), "uri", among="rem://prompts/"),
        ]
        asked = [rows for rows in found if rows is not None]
        for _, label, ref, pk in sorted(asked[0].union(*asked[1:], all=True)) if asked else ():
            self._urls[ref] = reverse(f"admin:{label}_change", args=[pk])
        named = {_session_id(ref) for ref in refs if ref.startswith(SESSIONS)}
        sessions = Session.objects.for_user(user).filter(session_id__in=named)
        self._sessions = dict(sessions.values_list("session_id", "pk")) if named else {}

    def _rows(self, prefix: str, rows: QuerySet[Any], field: str, *, among: str = "") -> QuerySet[Any, Any] | None:
        """Return what addresses name of a kind, as (order, page, address, primary key); None where none does."""
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
        """Return the page behind an address; blank where there is none, or none any more."""
        pk = self._sessions.get(_session_id(ref)) if ref.startswith(SESSIONS) else None
        if pk is None:
            return self._urls.get(ref, "")
        if ref.endswith("/summary"):
            return page_url(Summary, "chain", pk)
        return turn_url(pk, int(ref.rsplit("/", 1)[1]))


def _session_id(ref: str) -> str:
    """Read the id from the address of a turn, or of a session's summary; it may have slashes itself."""
    path = ref.removeprefix(SESSIONS)
    return path.removesuffix("/summary") if path.endswith("/summary") else path.rsplit("/messages/", 1)[0]
