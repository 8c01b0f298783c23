"""`embed_all`: embed every text with the embedded model, then activate the model for searches.

It runs when a site first has an embedded model, and when the model or its recipe changes. The job starts automatically,
because these vectors cost nothing. One job covers the whole site, runs for a minute at a time, and continues where it
stopped.
"""

import time
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from moments_app.engines import Caller, embedding_model
from moments_app.jobs.process import (
    ClaimLost,
    Lane,
    PostponeJob,
    Process,
    ProcessInput,
    Progress,
    QueuedJobs,
    Skipped,
    Timing,
)
from moments_app.jobs.runner import recorder
from moments_app.models import EmbeddingModel, Job
from moments_app.recall import embed
from moments_app.recall.request_vectors import vectors_in_parallel
from sessions_app.clock import database_now

SECONDS = 60.0  # maximum per run, so that other jobs can run in between


@dataclass(frozen=True)
class EmbedAllInput(ProcessInput):
    """The input of a run: the model that has embedded every text."""

    model: EmbeddingModel


class EmbedAll(Process[EmbedAllInput, None]):
    name = "embed_all"
    title = "Embed older texts"
    makes = "older texts in searches by meaning"
    lane = Lane.BULK
    is_upkeep = True
    sweep_timing = Timing(minutes=10)

    def caller(self, job: Job) -> Caller | None:
        """Return the embedded server if some texts lack a vector of its model."""
        model = incomplete_model()
        return embedding_model(model.recipe) if model else None

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Create missing vectors for up to `SECONDS`.

        Raises:
            EngineError: the server failed.
            PostponeJob: more texts are left.
        """
        model, caller = incomplete_model(), self.caller(job)
        if model is None or caller is None:
            return Skipped("every text already has a vector from the model")
        waiting = sum(embed.without_vector(kind, model).count() for kind in embed.kinds())
        embedder = caller.open(recorder(job, lambda _purpose: None, caller.work))
        done, until = 0, time.monotonic() + SECONDS
        for kind in embed.kinds():
            for texts in embed.batches(kind, model):
                answered = vectors_in_parallel(texts, embedder)
                embed.save_received(model, answered.made)
                if answered.error:
                    raise answered.error
                done += len(texts)
                progress(done, waiting)
                if time.monotonic() > until:
                    left = max(0, waiting - done)
                    raise PostponeJob(database_now() + timedelta(seconds=1), f"{left:,} texts to embed.")
        return None

    def claim(self, job: Job) -> EmbedAllInput | Skipped:
        """Return the model to activate. At this point, `prepare` has embedded every text with it."""
        model = incomplete_model()
        return EmbedAllInput(None, model) if model else Skipped("every text already has a vector from the model")

    def think(self, input: EmbedAllInput, engine: None, progress: Progress) -> None:
        """Do nothing, because `prepare` has called the server."""

    def commit(self, job: Job, input: EmbedAllInput, answer: None) -> None:
        if not job.is_claimed():
            raise ClaimLost
        EmbeddingModel.objects.filter(pk=input.model.pk).update(is_filled=True)
        input.model.activate()
        job.complete({"model": str(input.model)})

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue the job if some texts lack a vector of the embedded model."""
        if not incomplete_model():
            return QueuedJobs(0)
        if not dry_run:
            Job.objects.request(self.name, requested_by=self.name)
        return QueuedJobs(1)


def incomplete_model() -> EmbeddingModel | None:
    """Return the embedded server's model if some texts lack a vector of it."""
    model = EmbeddingModel.objects.in_use() if settings.EMBEDDING.is_embedded else None
    return None if model is None or model.is_filled else model
