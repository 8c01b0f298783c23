"""`group_candidates`: what several people said alike in a shard is put into groups, for operators and for the rule.

No engine is asked: see `alike`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from moments_app.jobs.process import (
    Asked,
    ClaimLost,
    Lane,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Timing,
    stream_of,
)
from moments_app.models import Job, MemoryAtom
from moments_app.streams import alike
from moments_app.streams.alike import Candidate, Nearness


@dataclass(frozen=True)
class GroupingInput(ProcessInput):
    """The input of a grouping.

    Args:
        new: candidates in no group.
        known: that they are compared with.
        near: what their vectors say.
    """

    new: Sequence[Candidate]
    known: Sequence[Candidate]
    near: Nearness


class GroupCandidates(Process[GroupingInput, dict[int, int]]):
    """Puts a shard's new candidates into groups."""

    name = "group_candidates"
    lane = Lane.BULK
    is_upkeep = True
    sweep_timing = Timing(minutes=settings.SHARING.interval_minutes)

    def claim(self, job: Job) -> GroupingInput | Skipped:
        """Read what is new, and the newest of what is in groups."""
        stream = stream_of(job)
        pks = [atom.pk for atom in alike.to_group(stream)[: alike.NEW]]
        if not pks:
            return Skipped("every candidate is in a group")
        new = alike.compared(MemoryAtom.objects.filter(pk__in=pks))
        known = alike.compared(alike.in_groups(stream))
        return GroupingInput(None, new, known, alike.nearness(new, known))

    def think(self, input: GroupingInput, engine: None, progress: Progress) -> dict[int, int]:
        """Compare them; nobody is asked."""
        return alike.groups_of(input.new, input.known, input.near)

    def commit(self, job: Job, input: GroupingInput, answer: dict[int, int]) -> None:
        """Write the groups, and go on where there is more, or with the rule.

        Raises:
            ClaimLost: the job was taken over or cancelled.
        """
        if not job.is_claimed():
            raise ClaimLost
        for group in set(answer.values()):
            pks = [pk for pk, its in answer.items() if its == group]
            MemoryAtom.objects.filter(pk__in=pks, alike=None).update(alike=group)
        job.complete({"candidates": len(answer), "groups": len(set(answer.values()))})
        stream, by = stream_of(job), f"job:{job.job_id}"
        if alike.to_group(stream).exists():
            Job.objects.request(self.name, stream=stream, requested_by=by)

    def sweep(self, *, dry_run: bool = False) -> Asked:
        """Ask for the grouping of shards that have new candidates."""
        shards = alike.shards_to_group()
        for shard in () if dry_run else shards:
            Job.objects.request(self.name, stream=shard, requested_by=self.name)
        return Asked(len(shards))
