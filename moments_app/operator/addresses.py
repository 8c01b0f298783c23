"""The pages behind the addresses that contexts and receipts name."""

from collections.abc import Collection
from typing import Any

from django.db.models import F, Q, QuerySet

from moments_app.models import Entity, MemoryAtom, MemoryStream, Moment, PromptResource, Summary
from sessions_app.admin.links import change_url, page_url, turn_url
from sessions_app.models import Session, UserProfile

NULLS_FIRST = F("application").asc(nulls_first=True)
SESSIONS = "rem://sessions/"


class Pages:
    """Finds the page behind an address; one query a kind of thing, however many addresses.

    Args:
        user: the person that the addresses were made for; those of shards are nobody's.
        refs: the addresses.
    """

    def __init__(self, user: UserProfile, refs: Collection[str]) -> None:
        self._refs = refs
        self._urls = {user.uri: change_url(user)}
        theirs = Q(user=user) | Q(user=None)
        self._find("rem://moments/key/", Moment.objects.for_user(user), "key")
        self._find("rem://entities/", Entity.objects.for_user(user), "entity_id")
        self._find("rem://atoms/", MemoryAtom.objects.filter(theirs), "atom_id")
        self._find("rem://streams/", MemoryStream.objects.filter(theirs), "stream_id")
        site, own = Q(application=None), Q(application=user.application_id)
        # What is the application's own comes last, in the place of the site's.
        self._find("", PromptResource.objects.filter(site | own).order_by(NULLS_FIRST), "uri", among="rem://prompts/")
        named = {_session_id(ref) for ref in refs if ref.startswith(SESSIONS)}
        sessions = Session.objects.for_user(user).filter(session_id__in=named)
        self._sessions = dict(sessions.values_list("session_id", "pk")) if named else {}

    def _find(self, prefix: str, rows: QuerySet[Any], field: str, *, among: str = "") -> None:
        wanted = {ref.removeprefix(prefix) for ref in self._refs if ref.startswith(among or prefix)}
        for row in rows.filter(**{f"{field}__in": wanted}).only(field) if wanted else ():
            self._urls[f"{prefix}{getattr(row, field)}"] = change_url(row)

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
