"""`manage.py probe` for build pipelines: figures without texts, and an exit code that says whether enough are met."""

import json
from typing import Any

import pytest
from django.core.management import CommandError

from memory_extras.lab.models import Probe, ProbeResult
from sessions_app.models import Application, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.commands import printed

pytestmark = pytest.mark.django_db(transaction=True)


def probe(user: UserProfile, expected: str, **fields: Any) -> Probe:
    return Probe.objects.create(user=user, question="What is it called?", expected=expected, created_by="t", **fields)


def told(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed("probe", *arguments))
    return found


def test_the_command_fails_if_too_few_probes_are_met(ada: UserProfile, bo: UserProfile) -> None:
    for user in (ada, bo):
        append(user, "s1", [NewMessage("user", f"The cat of {user.user_id} is Quince.")])
        probe(user, "Quince")
    probe(ada, "Walnut", session=ada.sessions.get())
    found = told("--threshold", "0.6")
    assert (found["probes"], found["met"], found["share"]) == (3, 2, 0.6667)
    run_ids = ProbeResult.objects.values_list("run_id", flat=True)
    assert {str(run_id) for run_id in run_ids} == {found["run_id"]}
    assert "Quince" not in json.dumps(found)
    with pytest.raises(CommandError, match="2 of 3 probes are met, less than the threshold of 100%"):
        told()
    assert told("--user", "bo")["probes"] == 1
    with pytest.raises(CommandError, match="0 of 1"):
        told("--session", "s1")


def test_the_command_fails_without_probes(ada: UserProfile) -> None:
    probe(ada, "Quince")
    Application.objects.create(name="other")
    for arguments in (["--user", "bo"], ["--application", "other"]):
        with pytest.raises(CommandError, match="There are no probes for these options"):
            told(*arguments)
    with pytest.raises(CommandError, match="between 0 and 1"):
        told("--threshold", "2")
