"""Benchmark of answers: `python -m benchmarks.answers FOLDER --out FOLDER`. docs/benchmarks.md explains it."""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.answers.contexts import CONDITIONS, take_contexts
from benchmarks.answers.kept import KeptResults
from benchmarks.answers.models import Model, ModelFailed
from benchmarks.conversations import BadConversations, Conversation, Question, read_folder
from benchmarks.figures import print_markdown

CLIENTS = 4
TITLE = "Answers from contexts"
COSTS = "Calls and tokens"
NOTE = "The share of answers that the judge calls right, by condition and kind of question, with mean context tokens."
COSTS_NOTE = "USD is – where ENGINE__PRICES has no price of the model."

Asked = tuple[Conversation, int, Question, str]  # a question with its number and condition


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description=TITLE)
    parser.add_argument("folder", type=Path, help="folder of conversations: our format, LoCoMo's or LongMemEval's")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; a later run continues them")
    parser.add_argument("--limit", type=int, help="most questions per conversation; without it, all are asked")
    parser.add_argument("--contexts-only", action="store_true", help="write contexts.jsonl, for other readers")
    options = parser.parse_args(arguments)
    reader = Model.named("READER")
    judge = Model.named("JUDGE", reader)
    if not (options.contexts_only or reader):
        parser.error("READER_MODEL is not set. It names the model that answers; --contexts-only needs none.")
    try:
        conversations = read_folder(options.folder)
    except BadConversations as error:
        print(error, file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    benchmark = Benchmark(options.out, conversations, options.limit)
    benchmark.take_contexts()
    if reader is None or judge is None or options.contexts_only:
        return 0
    return benchmark.answer(reader, judge)


class Benchmark:
    """The questions, and the existing results.

    Args:
        out: The folder of the results.
        conversations: The conversations with their questions.
        limit: The maximum number of questions per conversation, or None.
    """

    def __init__(self, out: Path, conversations: Sequence[Conversation], limit: int | None) -> None:
        self._out = out
        self._conversations = conversations
        self._limit = limit
        self._contexts, self._costs, self._answers, self._verdicts = (
            KeptResults(out / f"{name}.jsonl") for name in ("contexts", "costs", "answers", "verdicts")
        )

    def take_contexts(self) -> None:
        """Create the missing contexts."""
        take_contexts(self._out / "site", self._conversations, self._limit, self._contexts, self._costs)

    def answer(self, reader: Model, judge: Model) -> int:
        """Let one model answer and another judge. Print the tables, and return the exit status."""
        _set_up(self._out)
        asked = list(self._asked())
        with ThreadPoolExecutor(CLIENTS) as pool:
            failures = list(filter(None, pool.map(lambda one: self._decide(reader, judge, one), asked)))
        self._print(reader, judge, asked)
        if failures:
            print(f"{len(failures)} of {len(asked)} verdicts are missing, because: {failures[0]}", file=sys.stderr)
            print("Run the command again to continue.", file=sys.stderr)
        return 1 if failures else 0

    def _asked(self) -> Iterator[Asked]:
        """Yield each question in each condition that has a context."""
        for conversation in self._conversations:
            for number, question in enumerate(conversation.questions[: self._limit]):
                for condition in CONDITIONS:
                    if (conversation.id, str(number), condition) in self._contexts:
                        yield conversation, number, question, condition

    def _decide(self, reader: Model, judge: Model, asked: Asked) -> str:
        """Store the answer and verdict if they are missing. Return the reason if that fails."""
        question = asked[2]
        key, read, judged = _keys(reader, judge, asked)
        try:
            if read not in self._answers:
                answer = reader.read(question, self._contexts[key]["context"])
                self._answers.keep(read, **vars(answer))
            if judged not in self._verdicts:
                is_right, verdict = judge.judge(question, self._answers[read]["text"])
                self._verdicts.keep(judged, is_right=is_right, **vars(verdict))
        except ModelFailed as error:
            return str(error)
        return ""

    def _print(self, reader: Model, judge: Model, asked: Sequence[Asked]) -> None:
        """Print the correct answers and their costs."""
        right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
        tokens: dict[str, list[int]] = defaultdict(list)
        for one in asked:
            key, _read, judged = _keys(reader, judge, one)
            if judged in self._verdicts:
                _conversation, _number, question, condition = one
                for label in (question.label, "all"):
                    right[condition][label].append(self._verdicts[judged]["is_right"])
                tokens[condition].append(self._contexts[key]["tokens"])
        labels = sorted({question.label for _conversation, _number, question, _condition in asked})
        rows = [
            [
                condition,
                f"{fmean(tokens[condition]):,.0f}",
                *(_share(right[condition][one]) for one in ["all", *labels]),
            ]
            for condition in CONDITIONS
            if condition in right
        ]
        print_markdown(TITLE, ["condition", "tokens", "all", *labels], rows, NOTE)
        columns = ["purpose", "calls", "tokens in", "tokens out", "USD"]
        print_markdown(COSTS, columns, self._cost_rows(reader, judge, asked), COSTS_NOTE)

    def _cost_rows(self, reader: Model, judge: Model, asked: Sequence[Asked]) -> Iterator[list[str]]:
        """Yield a row for each purpose of the site's engine, for the reader and for the judge."""
        ids = {conversation.id for conversation in self._conversations}
        by_purpose: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (conversation, purpose), cost in self._costs.items():
            if conversation in ids:
                by_purpose[purpose].append(cost)
        keys = [_keys(reader, judge, one) for one in asked]
        for name, model, results in (
            ("reader", reader, [self._answers[read] for _, read, _ in keys if read in self._answers]),
            ("judge", judge, [self._verdicts[judged] for _, _, judged in keys if judged in self._verdicts]),
        ):
            by_purpose[f"{name} ({model.name})"] = [_priced(model, result) for result in results]
        for purpose, costs in by_purpose.items():
            yield [purpose, *_summed(costs)]


def _keys(reader: Model, judge: Model, asked: Asked) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the keys of the context, of the answer and of the verdict."""
    conversation, number, _question, condition = asked
    key = (conversation.id, str(number), condition)
    return key, (*key, reader.name), (*key, reader.name, judge.name)


def _priced(model: Model, result: dict[str, Any]) -> dict[str, Any]:
    from moments_app.models.engine_call import cost_of

    usd = cost_of(f"openai:{model.name}", result["input_tokens"], result["output_tokens"])
    return {"calls": 1, **result, "usd": None if usd is None else float(usd)}


def _summed(costs: Iterable[dict[str, Any]]) -> list[str]:
    costs = list(costs)
    sums = [f"{sum(cost[name] for cost in costs):,}" for name in ("calls", "input_tokens", "output_tokens")]
    prices = [cost["usd"] for cost in costs]
    return [*sums, "–" if None in prices else f"{sum(prices):.4f}"]


def _share(verdicts: Sequence[bool]) -> str:
    return f"{fmean(verdicts):.3f} of {len(verdicts)}" if verdicts else ""


def _set_up(out: Path) -> None:
    """Set up Django, whether or not a site has run in this process."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
    os.environ.setdefault("DATA_DIR", str((out / "site").resolve()))
    django.setup()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
