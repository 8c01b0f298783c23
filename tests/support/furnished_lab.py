"""Rows for the pages of the extra `lab`."""

import uuid

from memory_extras.lab.models import Probe
from memory_extras.lab.probes.save import draft_from, save_probe
from memory_extras.lab.trials.sample import start_trial
from moments_app.models import PromptVersion
from sessions_app.models import Session, UserProfile
from tests.support.transcript import talk


def furnish(session: Session) -> None:
    """Create probes with results, and a prompt trial over a sample."""
    _probe(session)
    _try_out()


def _probe(session: Session) -> None:
    """Create a probe that was met with one prompt and missed with the next."""
    draft = draft_from(session, 0)
    assert draft is not None
    probe, _ = save_probe(session.user, draft, created_by="operator:eve")
    for number, is_met in enumerate((True, False), start=1):
        probe.results.create(
            run_id=uuid.uuid4(),
            user=session.user,
            is_met=is_met,
            words_found=3 - number,
            words_count=4,
            missing_words=["kiln"],
            evidence_found=2 - number,
            evidence_count=1,
            tokens=900,
            refs={"retrieved": [f"rem://sessions/{session.session_id}/messages/1"]},
            setup={"prompts": {"rem://prompts/moment-builder": number}},
            requested_by="operator:eve",
        )
    Probe.objects.create(user=session.user, question="Where is the felt?", expected="Shelf", created_by="key:app")


def _try_out() -> None:
    """Create a trial of the first prompt over a sample, and a test person with a message."""
    version = PromptVersion.objects.earliest("resource", "pk")
    trial = start_trial(version, 3, requested_by="operator:eve")
    figures = {"calls": 3, "tokens": 2_000, "milliseconds": 4_000, "kept": 9, "dropped": 1, "met": 1, "probes": 2}
    trial.sides.get().add(figures)
    talk(UserProfile.objects.create(user_id="tess", is_test=True), 4, session_id="playground-1")
