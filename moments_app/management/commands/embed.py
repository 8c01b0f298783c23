import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from moments_app.engines import embedder_name, embedding_model
from moments_app.models import EmbeddingModel, EngineCall
from moments_app.models.engine_call import cost_of
from moments_app.recall.vectors import (
    Text,
    Vectors,
    batches,
    embedding_progress,
    kinds,
    rejection_errors,
    texts_of,
    vectors_in_parallel,
    without_vector,
    write,
)
from sessions_app.text.length import estimate_tokens

TRIES = 5  # maximum consecutive attempts of a batch
SAMPLE = 200  # texts of each kind that are sampled to estimate tokens
PAUSE = 5.0  # seconds until a retry if the endpoint doesn't specify a time


class Command(BaseCommand):
    help = (
        "Embed everything that has no vector from a model yet. If the command is interrupted, run it again: it "
        "continues. With --activate, searches use the model once no vector is missing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--model", help="name of the model at the endpoint; default: the model in use")
        parser.add_argument("--dimensions", type=int, help="number of dimensions of the model's vectors")
        parser.add_argument("--refused", action="store_true", help="resend texts that the endpoint rejected")
        parser.add_argument(
            "--activate", action="store_true", help="switch searches to this model when all texts have a vector"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        if not settings.EMBEDDING.is_on:
            raise CommandError("No embeddings provider is configured. Set EMBEDDING__BASE_URL or EMBEDDING__API_KEY.")
        model = self._model(options["model"], options["dimensions"], wants_new=options["activate"])
        if options["refused"]:
            model.retry_refused()
        if not settings.EMBEDDING.is_embedded:
            self._print_cost(model)
        embedded = self._fill(model)
        if options["activate"] and not model.is_active:
            model.activate()
            embedded += self._fill(model)  # texts added since the last check were embedded with the former model
        state = "in use" if options["activate"] or model.is_active else "not in use; --activate switches to it"
        return f"{model}: {embedded:,} embedded, {self._missing(model)}, {state}."

    def _missing(self, model: EmbeddingModel) -> str:
        progress = embedding_progress(model)
        waiting, refused = (sum(getattr(row, name) for row in progress) for name in ("waiting", "refused"))
        parts = [f"{waiting:,} waiting"] if waiting else []
        if refused:
            reasons = " ".join(rejection_errors(model))
            parts.append(f"{refused:,} rejected (resend them with --refused){f' ({reasons})' if reasons else ''}")
        return ", ".join(parts) or "complete"

    def _model(self, name: str | None, dimensions: int | None, *, wants_new: bool) -> EmbeddingModel:
        """Return the model to fill. The default is the model in use.

        If `wants_new`, the default has the same name and dimensions, but the configured recipe.
        """
        if name and settings.EMBEDDING.is_embedded and name != settings.EMBEDDING.model:
            raise CommandError(
                f"The embedded server has only the model {settings.EMBEDDING.model}. To use a provider's model, set "
                "EMBEDDING__BASE_URL or EMBEDDING__API_KEY."
            )
        if not name and not dimensions:
            model = EmbeddingModel.objects.in_use()
            if not wants_new:
                return model
            name, dimensions = model.name, model.dimensions
        if not name or not dimensions:
            raise CommandError("Use --model and --dimensions together, or neither.")
        if not 1 <= dimensions <= 4_000:
            raise CommandError(f"--dimensions must be from 1 to 4000, not {dimensions}.")
        return EmbeddingModel.objects.ensure(name, dimensions, concurrently=True)

    def _print_cost(self, model: EmbeddingModel) -> None:
        """Print an estimate of the cost before any text is sent. The operator can still interrupt the command."""
        texts, tokens = 0, 0.0
        for kind in kinds():
            missing = without_vector(kind, model)
            sample = [estimate_tokens(text.text) for text in texts_of(list(missing[:SAMPLE]))]
            number = missing.count()
            texts += number
            tokens += number * fmean(sample or [0])
        cost = cost_of(embedder_name(model.name), round(tokens), 0)
        price = "price unknown" if cost is None else f"{cost:.2f} USD"
        self.stdout.write(f"{texts:,} texts to embed, about {tokens:,.0f} tokens, {price}.")
        self.stdout.flush()

    def _fill(self, model: EmbeddingModel) -> int:
        factory = embedding_model(model.recipe)
        embedder = factory.open(EngineCall.objects.record)
        embedded = 0
        for kind in kinds():
            missing = without_vector(kind, model).count()
            done = 0
            for texts in batches(kind, model):
                for vectors in self._vectors(texts, embedder):
                    done += write(model, vectors)
                    self.stdout.write(f"{kind}s: {done:,} of {missing:,}")
            embedded += done
        return embedded

    def _vectors(self, texts: list[Text], embedder: Any) -> Iterator[Vectors]:
        """Yield vectors as they arrive. Retry failed texts up to `TRIES` times in a row."""
        tries = 0
        while texts:
            answered = vectors_in_parallel(texts, embedder)
            if answered.made:
                yield answered.made
                tries = 0
            if answered.error:
                tries += 1
                if tries == TRIES or answered.error.kind == "invalid_answer":
                    raise CommandError(
                        f"{answered.error} Finished vectors are stored. Run the command again to continue."
                    )
                time.sleep(answered.error.retry_after or PAUSE)
            texts = answered.left
