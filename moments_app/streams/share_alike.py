"""`share_alike`: what several people said alike is released without an operator, where one switched that on.

The engine writes a wording of what all of them said; rules (`impersonal`) and a second call of the engine, which knows
nothing of the first, judge it against what is known of each of them. What doesn't pass is left to an operator, for good
and with the reason. What passes goes to the users of one agent, as a release like any other: signed, logged, revocable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from moments_app.engines import Caller, language_model
from moments_app.engines.calls.sharing import ReviewRequest, SharingRequest
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    ClaimLost,
    Lane,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Timing,
    complete,
    stream_of,
)
from moments_app.models import Job, MemoryAtom, MemoryStream, Release
from moments_app.models.stream import LESSONS
from moments_app.streams import alike
from moments_app.streams.impersonal import problem_of_wording
from moments_app.streams.release import CannotRelease, agent_of, quotes, release_by_rule
from moments_app.streams.revoke import withdraw_short
from moments_app.streams.sayings import Said, Screened, said_in, screened
from moments_app.turns.words import without_speaker

RULE = "rule:said alike v1"  # a change of what passes is another version
TURN_WORDS = 5  # in a row that nobody's turn may have
SHOWN = 12  # people whose words an engine is given


@dataclass(frozen=True)
class SharingInput(ProcessInput):
    """The input of a release by rule.

    Args:
        group: what was said alike.
        is_lesson: contexts would begin with it.
        said: by each person, as far as it counts.
        people: that it takes.
    """

    group: int
    is_lesson: bool
    said: Sequence[Said]
    people: int


@dataclass(frozen=True)
class Wording:
    """A wording, and why it is not released; blank when it is."""

    text: str
    problem: str
    engine: str


@dataclass(frozen=True)
class Swept:
    """What a sweep found.

    Args:
        groups: a sentence for each thing that enough people said alike.
        withdrawn: releases of which too few people remain.
    """

    groups: Sequence[str]
    withdrawn: int

    def __str__(self) -> str:
        return "\n".join([*self.groups, f"asked for: {len(self.groups)}, withdrawn: {self.withdrawn}"])


class ShareAlike(Process[SharingInput, Wording]):
    """Releases by rule what several people said alike in a shard, one thing a run."""

    name = "share_alike"
    lane = Lane.BULK
    sweep_timing = Timing(minutes=settings.SHARING.interval_minutes)

    def caller(self, job: Job) -> Caller:
        return language_model(settings.SHARING.model)

    def claim(self, job: Job) -> SharingInput | Skipped:
        """Read what was said, and what is known of those who said it."""
        stream = stream_of(job)
        if not settings.ENGINE.uses_model:
            return Skipped("the extractive engine can't put it in other words")
        if not MemoryStream.objects.shared_by_rule().filter(pk=stream.pk).exists():
            return Skipped("no operator switched the rule on")
        for group in alike.ready(stream):
            found = screened(group)
            for problem, pks in found.problems.items():
                MemoryAtom.objects.filter(pk__in=pks).update(left_to_operator=problem)
            if found.is_enough:
                said = [said_in(atom) for atom in found.counting]
                return SharingInput(None, group, stream.name == LESSONS, said, settings.SHARING.people)
        return Skipped("nothing was said alike by enough people")

    def think(self, input: SharingInput, engine: Engine, progress: Progress) -> Wording:
        """Have a wording written, and judge it: by rules, then by the engine."""
        shown = list({one.user: one for one in input.said}.values())[:SHOWN]
        said = [one.text for one in shown]
        progress(0, 2)
        wording = " ".join(engine.share(SharingRequest(said)).wording.split())
        if problem := _problem(wording, input):
            return Wording(wording, problem, engine.name)
        progress(1, 2)
        review = engine.review(ReviewRequest(wording, said, [one.told for one in shown]))
        return Wording(wording, review.problem, engine.name)

    def commit(self, job: Job, input: SharingInput, answer: Wording) -> None:
        """Release the wording, or leave what was said to an operator.

        Raises:
            ClaimLost: the job was taken over or cancelled.
        """
        if not job.is_claimed():
            raise ClaimLost
        problem = answer.problem or _released(input, answer.text)
        if problem:
            said = MemoryAtom.objects.filter(pk__in=[one.pk for one in input.said])
            said.update(left_to_operator=problem[:255])
        people = len({one.user for one in input.said})
        result = {"people": people, "left_to_operator": problem, "engine": answer.engine}
        complete(job, "said_alike_left" if problem else "said_alike_released", result)
        stream = stream_of(job)
        if alike.ready(stream):
            Job.objects.request(self.name, stream=stream, requested_by=f"job:{job.job_id}")

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Ask for the release of what enough people said alike; withdraw what too few remain of."""
        found = []
        for shard in MemoryStream.objects.shared_by_rule().order_by("pk"):
            groups = alike.ready(shard)
            found += [told for group in groups if (told := _told(shard, screened(group)))]
            if groups and settings.ENGINE.uses_model and not dry_run:
                Job.objects.request(self.name, stream=shard, requested_by=self.name)
        return Swept(found, Release.objects.standing().short().count() if dry_run else withdraw_short())


def _told(shard: MemoryStream, found: Screened) -> str:
    """Say what would be released, without a word of it; blank where too few said it."""
    if not found.is_enough:
        return ""
    first, agent = found.counting[0], agent_of(found.counting[0])
    way = "" if settings.ENGINE.uses_model else ", but by an operator: the extractive engine writes no wording"
    return f"{shard.title}: said alike by {found.people} people, for agent {agent}, first by atom {first.atom_id}{way}"


# --- think ---


def _problem(wording: str, input: SharingInput) -> str:
    """Return why a wording is not released; blank when nothing speaks against it."""
    if not wording:
        return "the engine found no wording that is nobody's"
    said, known = [one.text for one in input.said], [one.known for one in input.said]
    if quotes(wording, [text for one in input.said for text in (one.text, *one.turns)], in_a_row=TURN_WORDS):
        return "the wording repeats what somebody said"
    return problem_of_wording(wording, is_lesson=input.is_lesson, known=known, said=said)


# --- commit ---


def _released(input: SharingInput, wording: str) -> str:
    """Release a wording; return why it can't be, or blank."""
    texts = {one.pk: one.text for one in input.said}
    atoms = alike.members(input.group).filter(pk__in=texts)
    if not atoms:
        return "nobody says it any more"
    if any(without_speaker(atom.content) != texts[atom.pk] for atom in atoms):
        return "what was said was edited meanwhile"
    if alike.is_revoked(wording, atoms[0]):
        return "an operator revoked a release that says much the same"
    try:
        with transaction.atomic():
            release_by_rule(atoms, wording, actor=RULE, people=input.people)
    except CannotRelease as refusal:
        return str(refusal)
    return ""
