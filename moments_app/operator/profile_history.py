"""The states a profile was in, newest first, and what is between any two of them.

A version row is the profile as it was before a change, with who made the change; so who made the state of a row is
said by the row before it in time.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from moments_app.models import Job
from moments_app.operator.diff import DiffPart, list_diff, word_diff
from sessions_app.admin.links import change_url
from sessions_app.models import ProfileVersion, UserProfile

PAGE = 50
NOW = "now"


@dataclass(frozen=True)
class State:
    """A profile as it was for a while.

    Args:
        name: key of the version, or `now`.
        profile: what it said.
        made_at, made_by: of the change that led to it; nobody made the first.
        url: of the job that made it; blank for people.
    """

    name: str
    profile: UserProfile | ProfileVersion
    made_at: datetime
    made_by: str
    url: str

    @property
    def is_now(self) -> bool:
        return self.name == NOW


@dataclass(frozen=True)
class Comparison:
    """Two states, and the changes between them."""

    before: State
    after: State

    @property
    def summary(self) -> list[DiffPart]:
        return word_diff(self.before.profile.summary, self.after.profile.summary)

    @property
    def lists(self) -> dict[str, list[DiffPart]]:
        """Interests and topics, by their labels."""
        old, new = self.before.profile, self.after.profile
        return {
            "Interests": list_diff(old.interests, new.interests),
            "Preferred topics": list_diff(old.preferred_topics, new.preferred_topics),
        }


@dataclass(frozen=True)
class History:
    """A page of states.

    Args:
        states: newest first.
        older: key of the version where the next page begins; None where there is none.
    """

    states: Sequence[State]
    older: int | None

    def compare(self, before: str, after: str) -> Comparison | None:
        """Compare two states by their names; names that aren't here mean the newest two. None: there is only one."""
        named = {state.name: state for state in self.states}
        if len(self.states) < 2:
            return None
        return Comparison(named.get(before, self.states[1]), named.get(after, self.states[0]))


def history(profile: UserProfile, *, older_than: int | None = None) -> History:
    """Read a page of a profile's states.

    Args:
        profile: the profile now.
        older_than: key of a version; None: from now on back.
    """
    versions = profile.versions.order_by("-pk")
    rows = list((versions.filter(pk__lte=older_than) if older_than else versions)[: PAGE + 1])
    named: list[tuple[str, UserProfile | ProfileVersion]] = [(str(row.pk), row) for row in rows]
    if older_than is None:
        named.insert(0, (NOW, profile))
    made = rows if older_than is None else rows[1:]
    jobs = _jobs(made)
    states = [
        State(name, was, change.created_at, change.actor, jobs.get(change.actor, ""))
        if (change := made[number] if number < len(made) else None)
        else State(name, was, profile.created_at, "", "")
        for number, (name, was) in enumerate(named)
    ]
    is_more = len(rows) > PAGE
    return History(states[:-1] if is_more else states, rows[-1].pk if is_more else None)


def _jobs(changes: Sequence[ProfileVersion]) -> dict[str, str]:
    """Find the pages of the jobs that are actors."""
    ids = set()
    for change in changes:
        with suppress(ValueError):  # an actor of another kind
            ids.add(UUID(change.actor.removeprefix("job:")))
    return {f"job:{job.job_id}": change_url(job) for job in Job.objects.filter(job_id__in=ids)} if ids else {}
