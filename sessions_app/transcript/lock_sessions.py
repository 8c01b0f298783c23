"""Locks sessions until the transaction ends. Missing sessions are created."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sessions_app.database.sql import columns, insert_unless_there, read
from sessions_app.models import Session, UserProfile

# Always in the same order, to avoid deadlocks between transactions that lock several sessions.
_LOCK_SQL = """
SELECT {columns} FROM sessions_app_session s
JOIN unnest(%s::bigint[], %s::text[]) AS wanted (user_id, session_id) USING (user_id, session_id)
ORDER BY s.user_id, s.session_id FOR NO KEY UPDATE OF s
"""

Name = tuple[int, str]  # primary key of the person, and the application's id of the session


@dataclass(frozen=True)
class NamedSession:
    """A session that may not exist yet.

    Args:
        user: The owner of the session.
        session_id: The application's id of the session.
        agent_id, source: The values for a new session. An existing one keeps its own.
    """

    user: UserProfile
    session_id: str
    agent_id: str = ""
    source: str = ""

    @property
    def name(self) -> Name:
        return self.user.pk, self.session_id

    def new(self) -> Session:
        """Return the session as an unsaved row."""
        given = {field: value for field in ("agent_id", "source") if (value := getattr(self, field))}
        return Session(user=self.user, session_id=self.session_id, **given)


def locked_session(wanted: NamedSession) -> Session:
    """Return a session, locked until the transaction ends."""
    # Another transaction may create it in the meantime, and delete it again.
    while (session := Session.objects.of_person(wanted.user, wanted.session_id, locked=True)) is None:
        session = wanted.new()
        if insert_unless_there(session):
            break
    return session


def locked_sessions(wanted: Sequence[NamedSession]) -> dict[Name, Session]:
    """Return sessions by name, locked until the transaction ends."""
    by_name = {one.name: one for one in wanted}
    if len(by_name) == 1:  # saves a query for a new session
        return {name: locked_session(one) for name, one in by_name.items()}
    found: dict[Name, Session] = {}
    while by_name.keys() - found.keys():  # repeats if a session was deleted between two statements
        # Missing sessions are created before any is locked. Otherwise, two transactions that each hold a session and
        # create another could deadlock.
        _create_missing(by_name)
        found = _lock(by_name)
    return found


def _create_missing(wanted: Mapping[Name, NamedSession]) -> None:
    people, session_ids = zip(*wanted, strict=True)
    found = Session.objects.filter(user__in=people, session_id__in=session_ids)
    there = set(found.values_list("user_id", "session_id"))
    if missing := [one.new() for name, one in sorted(wanted.items()) if name not in there]:
        Session.objects.bulk_create(missing, ignore_conflicts=True)


def _lock(wanted: Mapping[Name, NamedSession]) -> dict[Name, Session]:
    names = [list(column) for column in zip(*wanted, strict=True)]
    found: dict[Name, Session] = {}
    for session, _ in read(Session, _LOCK_SQL.format(columns=columns(Session, "s")), names):
        name = session.user_id, session.session_id
        found[name], session.user = session, wanted[name].user
    return found
