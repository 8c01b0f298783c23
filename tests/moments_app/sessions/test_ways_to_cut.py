"""Memory depends on the messages, not on how turns are divided into batches and sessions."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path

import pytest
from django.utils import timezone

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.sessions.sweep import compact_sessions
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.jobs import work_off

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming"), pytest.mark.slow]

SAMPLE = Path(__file__).parents[3] / "benchmarks/samples/conversations/english.json"
MOST = 0.1  # maximum share of items that may differ
Said = list[list[NewMessage]]


def conversation() -> Said:
    """Return the turns of a conversation of several months, by session."""
    told = json.loads(SAMPLE.read_text())
    return [
        [
            NewMessage(
                "user" if turn["speaker"] == told["speakers"][0] else "assistant",
                turn["text"],
                created_at=datetime.fromisoformat(session["at"]) + timedelta(minutes=number),
            )
            for number, turn in enumerate(session["turns"])
        ]
        for session in told["sessions"]
    ]


def settle_all() -> None:
    Session.objects.update(last_arrived_at=timezone.now() - timedelta(hours=1))
    compact_sessions()
    work_off()


def in_parts(said: Said, size: int) -> Said:
    turns = list(chain.from_iterable(said))
    return [turns[start : start + size] for start in range(0, len(turns), size)]


def at_once(user: UserProfile, said: Said) -> None:
    append(user, "all", list(chain.from_iterable(said)))


def in_batches(size: int) -> Callable[[UserProfile, Said], None]:
    def say(user: UserProfile, said: Said) -> None:
        for part in in_parts(said, size):
            append(user, "all", part)
            work_off()

    return say


def in_own_sessions(user: UserProfile, said: Said) -> None:
    for number, turns in enumerate(said):
        append(user, f"s{number}", turns)
        settle_all()


def in_short_sessions(user: UserProfile, said: Said) -> None:
    for number, turns in enumerate(in_parts(said, 6)):
        append(user, f"s{number}", turns)


WAYS: dict[str, Callable[[UserProfile, Said], None]] = {
    "at once": at_once,
    "34 at a time": in_batches(34),
    "in rounds": in_batches(2),
    "in its own sessions, each settled by itself": in_own_sessions,
    "in sessions of six turns, settled together": in_short_sessions,
}


def test_the_same_turns_give_the_same_items_in_any_division() -> None:
    said = conversation()
    items = {}
    for way, say in WAYS.items():
        user = UserProfile.objects.ensure(way)
        # Turn off consolidation, because its result depends on timing.
        MemoryStream.objects.ensure_of_person(user, "default")
        MemoryStream.objects.filter(user=user).update(consolidation_prompt="")
        say(user, said)
        settle_all()
        items[way] = set(MemoryAtom.objects.filter(user=user).values_list("content", flat=True))
    for way, found in items.items():
        differs = len(found ^ items["at once"]) / len(found | items["at once"])
        assert differs <= MOST, f"{way}: {differs:.0%} of {len(found)} items"
    assert len(items["at once"]) > len(list(chain.from_iterable(said))) / 10
