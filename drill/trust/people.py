"""People with data of every kind, and the ids of these data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from drill.site import Site, wait_for
from drill.trust.isolation import OF_FIRST, TOPIC, UNKNOWN

TURNS = 60
WORK_SECONDS = 240
OPEN = "SELECT count(*) FROM moments_app_job WHERE status IN ('queued', 'processing')"
LISTED = {  # paths that list a person's ids, and their field names
    "session_id": ("sessions", "sessions", "session_id"),
    "key": ("moments", "moments", "key"),
    "job_id": ("jobs", "jobs", "job_id"),
    "stream_id": ("streams", "streams", "stream_id"),
    "entity_id": ("entities", "entities", "entity_id"),
    "retraction_id": ("retractions", "retractions", "retraction_id"),
    "fact_id": ("facts", "facts", "fact_id"),
    "correction_id": ("corrections", "corrections", "correction_id"),
    "probe_id": ("probes", "probes", "probe_id"),
}


@dataclass(frozen=True)
class SeededPerson:
    """A person, and a key for requests about them.

    Args:
        site: The site.
        key: A service key of scope `admin`.
        person: The person.
    """

    site: Site
    key: str
    person: str

    def ask(self, method: str, path: str, **fields: Any) -> Any:
        """Make a request about the person, and return the response.

        Raises:
            RuntimeError: It was rejected.
        """
        fields = {"user_id": self.person} | fields
        is_read = method == "GET"
        status, answer = self.site.request(
            method,
            f"/api/v1/{path}?{urlencode(fields)}" if is_read else f"/api/v1/{path}",
            None if is_read else fields,
            headers={"Authorization": f"Bearer {self.key}"},
        )
        if status >= 300:
            raise RuntimeError(f"{method} {path} returned {status}: {answer.decode()[:300]}")
        return json.loads(answer)

    def ids(self, name: str) -> list[str]:
        """Return the person's ids of a kind."""
        if name == "context_id":
            return [self.ask("GET", "memory/context", session_id="talk", query=TOPIC, format="json")["context_id"]]
        path, listed, field = LISTED[name]
        return sorted({str(one[field]) for one in self.ask("GET", path, limit=50)[listed]} - {UNKNOWN})


IDS = (*LISTED, "context_id")


def seed(known: SeededPerson, word: str) -> None:
    """Give a person data of every kind, each with a word."""
    for session in ("talk", f"{known.person}-own"):
        _talk(known, session, word)
    _know(known, word)
    _answered(known, word)
    goal = {"kind": "goal", "title": f"Make {word}", "body": f"From {TOPIC}."}
    known.ask("POST", "entities", **goal)
    noted = known.ask("POST", "entities", **goal | {"title": f"Forget {word}"})
    own = f"{known.person}-own"
    known.ask("POST", "retractions", session_id=own, sequences=[3], reason=word)
    known.ask("POST", "retractions", entity_ids=[noted["entity_id"]], reason=word)


def have_a_prompt(site: Site, key: str) -> None:
    """Give a key's application its own prompt, with a word that only its people may read."""
    prompt = {"name": OF_FIRST, "purpose": "memory-policy", "title": OF_FIRST, "content": f"Know {OF_FIRST}."}
    status, told = site.request("POST", "/api/v1/prompts", prompt, headers={"Authorization": f"Bearer {key}"})
    if status != 201:
        raise RuntimeError(f"prompts returned {status}: {told.decode()[:300]}")


def _talk(known: SeededPerson, session: str, word: str) -> None:
    messages = [
        {
            "role": ("user", "assistant")[number % 2],
            "content": f"{word}: part {number} of what {known.person} says about {TOPIC}.",
        }
        for number in range(TURNS)
    ]
    known.ask("POST", f"sessions/{session}/messages", messages=messages)
    known.ask("POST", "moments/build", session_id=session, force=True, lag=2)


def _know(known: SeededPerson, word: str) -> None:
    """Write facts, including some about other people, and correct one. Create a probe, and run it."""
    wait_for("all work to be done", lambda: not known.site.number(OPEN), WORK_SECONDS, pause=0.3)
    streams = known.ask("GET", "streams", stream_type="user", limit=50)["streams"]
    stream = next(one["stream_id"] for one in streams if one["user_id"] == known.person)
    fact: Mapping[str, Any] = {"atom_type": "fact", "formed_at": "2026-03-02T10:00:00Z"}
    for text in (f"{word} works at {TOPIC}.", f"{word} lives behind {TOPIC}."):
        known.ask("POST", f"streams/{stream}/atoms", **fact, content=text, related_users=["cleo"])
    written = known.ask("GET", "facts", limit=50)["facts"]
    wrong = next(one["fact_id"] for one in written if "lives behind" in one["content"])
    known.ask("PATCH", f"facts/{wrong}", content=f"{word} lives in {TOPIC}.")
    known.ask("POST", "probes", question=f"What of {TOPIC} and {word}?", expected=word, session_id="talk")
    known.ask("POST", "probes/run")


def _answered(known: SeededPerson, word: str) -> None:
    """Create an answer with the context that it used, and a model's response."""
    [context] = known.ids("context_id")
    answer = {"role": "assistant", "content": f"{word} is all I know."}
    known.ask("POST", "sessions/talk/messages", messages=[answer], context_id=context)
    body = {"model": "drill", "input": f"What of {word} and {TOPIC}?"}
    named = {"X-User-Id": known.person, "X-Session-Id": "talk", "Authorization": f"Bearer {known.key}"}
    status, told = known.site.request("POST", "/v1/responses", body, headers=named)
    if status != 200:
        raise RuntimeError(f"/v1/responses returned {status}: {told.decode()[:300]}")
