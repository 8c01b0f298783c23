"""`embed_all`: every text gets a vector of the embedded model, and then searches use it.

It runs when a site first has an embedded model, and when the model or its recipe changes. Such vectors cost nothing, so
no command is needed. One job does all of the site, a minute at a time, and continues where it was.
"""

import time
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from moments_app.engines import Caller, embedding_model
from moments_app.jobs.process import Asked, ClaimLost, Lane, Process, ProcessInput, Progress, Skipped, Timing, Waits
from moments_app.jobs.runner import recorder
from moments_app.models import EmbeddingModel, Job
from moments_app.recall import embed
from moments_app.recall.vectors import vectors_side_by_side
from sessions_app.clock import database_now

SECONDS = 60.0  # per run; then other jobs have their turn


@dataclass(frozen=True)
class EmbedAllInput(ProcessInput):
    """The model that every text has a vector of."""

    model: EmbeddingModel


class EmbedAll(Process[EmbedAllInput, None]):
    """Fills the embedded model, then activates it."""

    name = "embed_all"
    title = "Embed older texts"
    makes = "older texts in searches by meaning"
    lane = Lane.BULK
    is_upkeep = True
    sweep_timing = Timing(minutes=10)

    def caller(self, job: Job) -> Caller | None:
        """Return the embedded server, if its model is to be filled."""
        model = unfilled()
        return embedding_model(model.recipe) if model else None

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Make the missing vectors for a while.

        Raises:
            EngineError: the server doesn't answer.
            Waits: there are more texts.
        """
        model, caller = unfilled(), self.caller(job)
        if model is None or caller is None:
            return Skipped("the model is filled")
        waiting = sum(embed.without_vector(kind, model).count() for kind in embed.kinds())
        embedder = caller.open(recorder(job, lambda _purpose: None, caller.work))
        done, until = 0, time.monotonic() + SECONDS
        for kind in embed.kinds():
            for texts in embed.batches(kind, model):
                answered = vectors_side_by_side(texts, embedder)
                embed.keep_answered(model, answered.made)
                if answered.error:
                    raise answered.error
                done += len(texts)
                progress(done, waiting)
                if time.monotonic() > until:
                    raise Waits(database_now() + timedelta(seconds=1), f"{max(0, waiting - done):,} texts to embed.")
        return None

    def claim(self, job: Job) -> EmbedAllInput | Skipped:
        """Read which model was filled."""
        model = unfilled()
        return EmbedAllInput(None, model) if model else Skipped("the model is filled")

    def think(self, input: EmbedAllInput, engine: None, progress: Progress) -> None:
        """Do nothing: `prepare` has asked the server."""

    def commit(self, job: Job, input: EmbedAllInput, answer: None) -> None:
        """Switch searches to the model, and complete the job."""
        if not job.is_claimed():
            raise ClaimLost
        EmbeddingModel.objects.filter(pk=input.model.pk).update(is_filled=True)
        input.model.activate()
        job.complete({"model": str(input.model)})

    def sweep(self, *, dry_run: bool = False) -> Asked:
        """Queue the job if the embedded model isn't filled."""
        if not unfilled():
            return Asked(0)
        if not dry_run:
            Job.objects.request(self.name, requested_by=self.name)
        return Asked(1)


def unfilled() -> EmbeddingModel | None:
    """Return the model of the embedded server while texts lack a vector of it."""
    model = EmbeddingModel.objects.in_use() if settings.EMBEDDING.is_embedded else None
    return None if model is None or model.is_filled else model
