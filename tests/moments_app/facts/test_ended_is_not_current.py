"""No ended fact is stated as current after any sequence of corrections, undos, retractions, archiving and imports.

`EXAMPLES=10000 pytest tests/moments_app/facts/test_ended_is_not_current.py -s` runs more examples and prints the steps.
"""

import itertools
import os
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moments_app.jobs.runner import run_job
from moments_app.models import Correction, Job, MemoryAtom, Retraction
from moments_app.provenance.correct import (
    CannotCorrect,
    correct,
    end_request,
    replacement_request,
    undo_correction,
    withdrawal_request,
)
from moments_app.provenance.retract import TurnsAreArchived, retract
from moments_app.provenance.undo import sessions_to_restore, undo_retraction
from moments_app.sessions.digest import DigestSession
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.people.export import export_user
from sessions_app.people.import_user import import_user
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.retention import cover
from tests.support.streams import form
from tests.support.transcript import arrived_when_said

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("forming", "archive_folder"),
    pytest.mark.slow(seconds=30),
]

CITIES = (
    "Oslo Bergen Turin Lyon Ghent Porto Graz Tartu Malmo Cork Leeds Basel Bonn Nantes Seville Split Varna Brno "
    "Gdansk Patras Vaasa Tromso Linz Bilbao"
).split()
START = datetime(2025, 1, 1, 12, tzinfo=UTC)
DONE = Counter[str]()
NUMBERS = itertools.count()
ENDED, WITHDRAWN = Correction.Kind.ENDED, Correction.Kind.WITHDRAWN


@dataclass
class Said:
    """A sentence that names a home, and the changes made to it: a model of memory."""

    session_id: str
    city: str
    corrections: list[tuple[UUID, str, str]] = field(default_factory=list)  # id, kind, city
    retraction: int | None = None
    is_over: bool = False
    is_gone: bool = False

    @property
    def value(self) -> str:
        return next((city for _, _, city in reversed(self.corrections) if city), self.city)

    @property
    def counts(self) -> bool:
        """Return whether the sentence counts: it is neither withdrawn nor retracted."""
        return not (self.is_gone or self.retraction or WITHDRAWN in self._kinds)

    @property
    def holds(self) -> bool:
        return self.counts and not self.is_over and ENDED not in self._kinds

    @property
    def _kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.corrections]


class Life(RuleBasedStateMachine):
    """A person who moves, and changes to the facts about where they live."""

    service: Api

    def __init__(self) -> None:
        super().__init__()
        self.user_id = f"user-{next(NUMBERS)}"
        self.user = UserProfile.objects.ensure(self.user_id)
        self.said: list[Said] = []
        self.cities = iter(CITIES)

    def teardown(self) -> None:
        self.context_states_what_holds()
        erase_user(self.user_id, application=DEFAULT, actor="test")

    @property
    def current(self) -> set[str]:
        """Return the current homes: that of the last sentence that counts, unless it ended."""
        return {one.value for one in [one for one in self.said if one.counts][-1:] if one.holds}

    def fact(self, said: Said) -> MemoryAtom:
        facts = MemoryAtom.objects.filter(user=self.user, value=said.value, is_wrong=False).exclude(state="evicted")
        return facts.get(source_session__session_id=said.session_id)

    def choose(self, number: int, *, holds: bool = False) -> Said | None:
        found = [one for one in self.said if (one.holds and one.value in self.current if holds else one.counts)]
        return found[number % len(found)] if found else None

    def new_city(self) -> str:
        return next(self.cities)

    def note(self, step: str) -> None:
        DONE[step] += 1

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for _ in range(count):
            self.say(moves=True)

    @precondition(lambda self: len(self.said) < 8)
    @rule(moves=st.booleans())
    def say(self, moves: bool) -> None:
        number, city = len(self.said), self.new_city()
        text = f"I moved to {city}." if moves else f"I live in {city}."
        at = START + timedelta(days=10 * number)
        form(append(self.user, f"s{number}", [NewMessage("user", text, created_at=at)]).session)
        self.said.append(Said(f"s{number}", city))
        self.note("say")

    @rule(number=st.integers(0, 7))
    def end(self, number: int) -> None:
        if said := self.choose(number, holds=True):
            made = correct(self.fact(said), end_request(), requested_by="test")
            said.corrections.append((made.correction_id, made.kind, ""))
            self.note("end")

    @rule(number=st.integers(0, 7), steps=st.integers(1, 2))
    def correct(self, number: int, steps: int) -> None:
        for _ in range(steps):
            if (said := self.choose(number)) and (city := next(self.cities, "")):
                made = correct(self.fact(said), replacement_request(f"User: I live in {city}."), requested_by="test")
                said.corrections.append((made.correction_id, made.kind, city))
                self.note("correct")

    @rule(number=st.integers(0, 7))
    def correct_back(self, number: int) -> None:
        said = self.choose(number)
        if said and said.value != said.city:
            made = correct(self.fact(said), replacement_request(f"User: I live in {said.city}."), requested_by="test")
            said.corrections.append((made.correction_id, made.kind, said.city))
            self.note("correct back")

    @rule(number=st.integers(0, 7))
    def withdraw(self, number: int) -> None:
        if said := self.choose(number):
            made = correct(self.fact(said), withdrawal_request(), requested_by="test")
            said.corrections.append((made.correction_id, made.kind, ""))
            self.note("withdraw")

    @rule(number=st.integers(0, 20))
    def undo(self, number: int) -> None:
        made = [(one, each) for one in self.said if not one.retraction for each in one.corrections]
        if not made:
            return
        said, each = made[number % len(made)]
        try:
            undo_correction(Correction.objects.get(correction_id=each[0]), requested_by="test")
        except CannotCorrect:
            self.note("undo refused")
            return
        said.corrections.remove(each)
        self.note("undo")

    @rule(number=st.integers(0, 7))
    def retract(self, number: int) -> None:
        if said := self.choose(number):
            session = Session.objects.get(user=self.user, session_id=said.session_id)
            try:
                made = retract(session, [0], reason="test", requested_by="test")
            except TurnsAreArchived:
                restore_archive(session, actor="test")
                session.refresh_from_db()
                made = retract(session, [0], reason="test", requested_by="test")
            said.retraction = made.pk
            self.note("retract")

    @rule()
    def undo_retraction(self) -> None:
        if found := sorted((one for one in self.said if one.retraction), key=lambda one: one.retraction or 0):
            said = found[-1]  # undo the newest first
            made = Retraction.objects.get(pk=said.retraction or 0)
            for session in sessions_to_restore(made):
                restore_archive(session, actor="test")
            undo_retraction(made, requested_by="test")
            said.retraction = None
            self.note("undo retraction")

    @rule(number=st.integers(0, 7))
    def digest(self, number: int) -> None:
        if said := self.choose(number):
            session = Session.objects.get(user=self.user, session_id=said.session_id)
            run_job(Job.objects.request(DigestSession.name, session, requested_by="test", force=True).job_id)
            self.note("digest")

    @rule()
    def archive(self) -> None:
        for session in Session.objects.filter(user=self.user, moments=None):
            arrived_when_said(session)
            cover(session, session.message_count)
        retain()
        self.note("archive")

    @rule()
    def move(self) -> None:
        """Export the person, erase them, and import them again."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "export.zip"
            with path.open("wb") as file:
                export_user(self.user_id, file, application=DEFAULT)
            erase_user(self.user_id, application=DEFAULT, actor="test")
            import_user(path, application=DEFAULT)
        self.user = UserProfile.objects.get(user_id=self.user_id)
        for said in self.said:  # corrections and retractions can't be undone after an import
            said.is_gone = not said.counts
            said.is_over = not said.holds
            said.city, said.corrections, said.retraction = said.value, [], None
        self.note("export and import")

    @invariant()
    def facts_and_profile_state_what_holds(self) -> None:
        facts = MemoryAtom.objects.current().filter(user=self.user, attribute="home")
        assert {*facts.values_list("value", flat=True)} == self.current
        self.user.refresh_from_db()
        stated = {city for city in CITIES if city in self.user.summary}
        assert stated == self.current

    @invariant()
    def digests_state_no_wrong_home(self) -> None:
        for event in Message.objects.partitions().filter(user=self.user).select_related("session"):
            [said] = [one for one in self.said if one.session_id == event.session.session_id]
            stated = {city for city in CITIES if city in event.content}
            assert stated <= ({said.value} if said.counts else set()), event.content

    def context_states_what_holds(self) -> None:
        """A context has an ended home only with a mark that it is over, or in a moment with its time."""
        asked = {"user_id": self.user_id, "session_id": "asking", "query": "Where do I live?"}
        layers = self.service.get("memory/context", **asked, layers="user,moments,retrieved").json()["layers"]
        for item in [item for layer in layers if layer["name"] != "query" for item in layer["items"]]:
            stated = {city for city in CITIES if city in item["text"]}
            if stated and not stated & self.current:
                ref = item["ref"] or ""
                if ref.startswith("rem://atoms/"):
                    assert "(held " in item["text"], item
                elif "/messages/" in ref:
                    assert re.search(r"\((no longer true |corrected |withdrawn )?since\b", item["text"]), item
                else:
                    assert item["time"], item


def test_row_2_no_ended_fact_is_stated_as_current(service: Api) -> None:
    Life.service = service
    examples = int(os.environ.get("EXAMPLES", "5"))
    phases = (Phase.generate, Phase.shrink)
    asked = settings(max_examples=examples, stateful_step_count=10, deadline=None, phases=phases)
    run_state_machine_as_test(Life, settings=asked)
    print(f"{examples} examples, {sum(DONE.values())} steps: {dict(DONE.most_common())}")  # noqa: T201
    assert not Message.objects.filter(user__user_id__startswith="user-").exists()
