"""Converts the files of LoCoMo and LongMemEval to the format of `benchmarks.conversations`.

LoCoMo: https://github.com/snap-research/locomo, `locomo10.json`.
LongMemEval: https://github.com/xiaowu0162/LongMemEval, `longmemeval_s.json` and similar files.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

NOT_ANSWERED = 5  # category of the questions that the conversation doesn't answer
OTHER = 0  # category of LongMemEval's questions, whose kinds have names
LOCOMO_TIME = "%I:%M %p on %d %B, %Y"  # 1:56 pm on 8 May, 2023
LONGMEMEVAL_TIME = "%Y/%m/%d %H:%M"  # 2023/05/20 (Sat) 02:21, without the weekday
WEEKDAY = re.compile(r"\s*\(\w+\)")
TURN_ID = re.compile(r"D\d+:\d+")  # in LoCoMo's evidence, where some entries contain two


def conversations(content: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the conversations of a file.

    Raises:
        ValueError: It belongs to neither of the two benchmarks.
    """
    for item in content:
        if "haystack_sessions" in item:
            yield _longmemeval(item)
        elif "conversation" in item:
            yield _locomo(item)
        else:
            raise ValueError("It is neither a conversation nor a file of LoCoMo or LongMemEval")


def _locomo(item: dict[str, Any]) -> dict[str, Any]:
    told = item["conversation"]
    numbers = sorted(int(key.split("_")[1]) for key in told if re.fullmatch(r"session_\d+", key))
    sessions: list[dict[str, Any]] = [
        {
            "n": number,
            "at": _time(told[f"session_{number}_date_time"], LOCOMO_TIME),
            "turns": [_locomo_turn(turn) for turn in told[f"session_{number}"]],
        }
        for number in numbers
    ]
    known = {turn["id"] for session in sessions for turn in session["turns"]}
    return {
        "id": str(item["sample_id"]),
        "speakers": [told["speaker_a"], told["speaker_b"]],
        "sessions": sessions,
        "questions": [_locomo_question(question, known) for question in item["qa"]],
    }


def _locomo_turn(turn: dict[str, Any]) -> dict[str, Any]:
    picture = f" [shares a photo of {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return {"id": turn["dia_id"], "speaker": turn["speaker"], "text": turn["text"] + picture}


def _locomo_question(question: dict[str, Any], known: set[str]) -> dict[str, Any]:
    evidence = TURN_ID.findall(" ".join(question["evidence"]))
    return {
        "q": question["question"],
        "a": question.get("answer", ""),
        "category": question["category"],
        "evidence": [turn for turn in dict.fromkeys(evidence) if turn in known],
    }


def _longmemeval(item: dict[str, Any]) -> dict[str, Any]:
    """Convert an instance, which is one question with its own sessions."""
    dated = sorted(
        zip(item["haystack_dates"], item["haystack_sessions"], strict=True),
        key=lambda one: _time(one[0], LONGMEMEVAL_TIME),
    )
    evidence: list[str] = []
    sessions = []
    for number, (date, turns) in enumerate(dated):
        named = [(f"{number}:{place}", turn) for place, turn in enumerate(turns) if turn["content"].strip()]
        evidence += [turn_id for turn_id, turn in named if turn.get("has_answer")]
        said = [{"id": turn_id, "speaker": turn["role"], "text": turn["content"]} for turn_id, turn in named]
        sessions.append({"n": number, "at": _time(date, LONGMEMEVAL_TIME), "turns": said})
    is_answered = not item["question_id"].endswith("_abs")
    question = {
        "q": item["question"],
        "a": item["answer"],
        "category": OTHER if is_answered else NOT_ANSWERED,
        "kind": item["question_type"] if is_answered else "abstention",
        "asked_at": item["question_date"],
        "evidence": evidence,
    }
    return {
        "id": item["question_id"],
        "speakers": ["user", "assistant"],
        "sessions": sessions,
        "questions": [question],
        "names_speakers": False,
    }


def _time(text: str, form: str) -> datetime:
    return datetime.strptime(WEEKDAY.sub("", text), form).replace(tzinfo=UTC)
