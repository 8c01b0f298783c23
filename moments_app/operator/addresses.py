"""Find the admin pages for `rem://` addresses, and describe the rows at these addresses."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.models import BigIntegerField, DateTimeField, F, Field, Model, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat
from django.urls import reverse
from django.utils import timezone

from moments_app.models import Entity, MemoryAtom, MemoryStream, Moment, PromptResource
from moments_app.models.atom import ENTITIES
from moments_app.provenance.rewording import EVENT
from sessions_app.admin.links import change_url, page_url, turn_url
from sessions_app.models import Message, Session, UserProfile
from sessions_app.people.provenance import Provenance, declared

SESSIONS = "rem://sessions/"
# Descriptions, keyed by the prefix of the address. `{}` is replaced by the rest of the address.
NAMES = {
    "rem://moments/key/": "the moment {}",
    "rem://atoms/": "an item",
    ENTITIES: "a task, goal or problem",
    "rem://streams/": "a memory text",
    "rem://prompts/": "the prompt {}",
    "rem://users/": "the profile",
}
# The columns that describe a row: kind, time, and source turn. The source turn is identified by its session and
# sequence number, or by its primary key.
COLUMNS: dict[str, "Field[Any, Any]"] = {
    "kind": TextField(),
    "time": DateTimeField(),
    "session": TextField(),
    "sequence": BigIntegerField(),
    "turn": BigIntegerField(),
}
_SOURCE = F("source_session__session_id")
# Rows of other tables are described by their kind. A row without a kind is described by its address.
_COLUMNS_OF: dict[type[Model], dict[str, F | Value]] = {
    MemoryAtom: {"kind": F("atom_type"), "time": F("formed_at"), "turn": F("source_message_ids__0")},
    Moment: {"kind": Value("moment"), "time": F("ends_at"), "session": _SOURCE, "sequence": F("first_sequence")},
    Entity: {"kind": F("kind"), "time": F("created_at"), "session": _SOURCE},
    MemoryStream: {},
    PromptResource: {},
    Session: {},
}


@dataclass(frozen=True)
class Source:
    """The row that an address names.

    Args:
        name: a description, such as `fact, 21 Nov, from chat-1 turn 4`.
        url: the admin page; blank if there is none.
    """

    ref: str
    name: str
    url: str = ""


class _Row(NamedTuple):
    order: int
    label: str
    ref: str
    pk: int
    kind: str | None
    time: datetime | None
    session: str | None
    sequence: int | None
    turn: int | None


def name_of_source(ref: str) -> str:
    """Return a description of the row at an address, without looking it up."""
    if ref.startswith(SESSIONS):
        turn = ref.removesuffix(EVENT)
        session, is_turn, sequence = turn.removeprefix(SESSIONS).rpartition("/messages/")
        start = "turn" if turn == ref else "the boundary after turn"
        return f"{start} {sequence} of {session}" if is_turn else f"the summary of {_session_id(ref)}"
    named = (name.format(ref.removeprefix(start)) for start, name in NAMES.items() if ref.startswith(start))
    return next(named, ref)


class Pages:
    """The pages and descriptions of some addresses, looked up with two queries.

    Args:
        user: the person whose contexts contain the addresses.
    """

    def __init__(self, user: UserProfile, refs: Collection[str]) -> None:
        self._refs, self._kinds = refs, 0
        self._sessions: dict[str, int] = {}
        self._urls = {user.uri: change_url(user)}
        site, own = Q(application=None), Q(application=user.application_id)
        sessions = {_session_id(ref) for ref in refs if ref.startswith(SESSIONS)}
        found = [
            *(self._of_table(table, user) for table in declared() if table.address),
            self._rows(ENTITIES, Entity.objects.for_user(user), "atom_id"),
            # The application's own prompts come last, so they replace the global ones.
            self._rows("", PromptResource.objects.filter(site), "uri", among="rem://prompts/"),
            self._rows("", PromptResource.objects.filter(own), "uri", among="rem://prompts/"),
            self._rows(SESSIONS, Session.objects.for_user(user), "session_id", wanted=sessions),
        ]
        tables = [rows for rows in found if rows is not None]
        rows = (
            sorted(map(_Row._make, tables[0].union(*tables[1:], all=True)), key=attrgetter("order")) if tables else []
        )
        turns = _turns_of(user, rows)
        self._names = {row.ref: _description(row, turns) for row in rows if row.kind}
        for row in rows:
            if row.ref.startswith(SESSIONS):
                self._sessions[row.ref.removeprefix(SESSIONS)] = row.pk
            else:
                self._urls[row.ref] = reverse(f"admin:{row.label}_change", args=[row.pk])

    def _of_table(self, table: Provenance, user: UserProfile) -> QuerySet[Any, Any] | None:
        """Return the rows of a table at the addresses. They belong to the person or to shards."""
        assert table.address is not None  # because `__init__` selects tables with an address
        start, field = table.address
        may_be_shared = table.model._meta.get_field(table.person).null
        is_visible = Q(user=user) | Q(user=None) if may_be_shared else Q(user=user)
        return self._rows(start, table.model._default_manager.filter(is_visible), field)

    def _rows(
        self, prefix: str, rows: QuerySet[Any], field: str, *, among: str = "", wanted: Collection[str] | None = None
    ) -> QuerySet[Any, Any] | None:
        """Return the rows at addresses of one kind, as columns of `_Row`, or None if no address is of this kind.

        Args:
            rows: the rows in which to look up the addresses.
            field: the field whose value follows the prefix in an address.
            among: the prefix of addresses of this kind, if the field contains the whole address.
            wanted: the values to find. Default: the parts of the addresses after the prefix.
        """
        if wanted is None:
            wanted = {ref.removeprefix(prefix) for ref in self._refs if ref.startswith(among or prefix)}
        if not wanted:
            return None
        options = rows.model._meta
        columns = _COLUMNS_OF.get(rows.model, {"kind": Value(str(options.verbose_name))})
        self._kinds += 1
        return (
            rows.filter(**{f"{field}__in": wanted})
            .order_by()
            .values_list(
                Value(self._kinds),
                Value(f"{options.app_label}_{options.model_name}"),
                Concat(Value(prefix), Cast(field, TextField()), output_field=TextField()),
                "pk",
                *(Cast(columns.get(name, Value(None)), field) for name, field in COLUMNS.items()),
            )
        )

    def of(self, ref: str) -> str:
        """Return the URL of the admin page. Blank if there is no page, or the row was deleted."""
        pk = self._sessions.get(_session_id(ref)) if ref.startswith(SESSIONS) else None
        if pk is None:
            return self._urls.get(ref, "")
        if ref.endswith("/summary"):
            return page_url(Session, "summaries", pk)
        return turn_url(pk, int(ref.removesuffix(EVENT).rsplit("/", 1)[1]))

    def source(self, ref: str) -> Source:
        """Return the description and URL of the row at an address. The description of a deleted row says so."""
        url, name = self.of(ref), self._names.get(ref) or name_of_source(ref)
        return Source(ref, name if url or not ref else f"{name} (deleted)", url)


def _turns_of(user: UserProfile, rows: Collection[_Row]) -> dict[int, tuple[str, int]]:
    """Return the session id and sequence number of each source turn, keyed by the turn's primary key."""
    turns = Message.objects.filter(user=user, pk__in={row.turn for row in rows if row.turn})
    return {pk: (session, n) for pk, session, n in turns.values_list("pk", "session__session_id", "sequence")}


def _description(row: _Row, turns: Mapping[int, tuple[str, int]]) -> str:
    """Return a description of a row, such as `fact, 21 Nov, from chat-1 turn 4`."""
    session, sequence = turns.get(row.turn or 0, (row.session, row.sequence))
    turn = "" if sequence is None else f" turn {sequence}"
    return f"{row.kind}{_day(row.time)}" + (f", from {session}{turn}" if session else "")


def _day(time: datetime | None) -> str:
    if time is None:
        return ""
    return f", {time:%-d %b}" if time.year == timezone.now().year else f", {time:%-d %b %Y}"


def _session_id(ref: str) -> str:
    """Return the session id in the address of a turn or a summary. The id may contain slashes."""
    path = ref.removeprefix(SESSIONS)
    return path.removesuffix("/summary") if path.endswith("/summary") else path.rsplit("/messages/", 1)[0]
