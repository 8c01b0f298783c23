"""The demonstration. It posts a conversation of several days to the API, and shows the resulting memory.

Like any application, it uses only the API. The worker builds the memory.
"""

import json
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, build_opener

CONVERSATION = Path(__file__).parent / "conversation.jsonl"
BATCH = 100
BUILD_TIMEOUT = 120  # seconds
QUESTION = "How many kronor a month is the shop on Linnégatan, and how large is it?"
QUESTION_TOKENS = 400  # the budget of the context, enough for a few lines
MOMENTS = 5  # number of moments to show
LINE = 110  # number of characters to show of a text

open_url = build_opener(ProxyHandler({})).open  # ignores the proxies in the environment


class StepFailed(Exception):
    """A call of the demonstration failed. The message is one line that names the call and the error."""


class Demonstration:
    """A run of the demonstration.

    Args:
        key: An API key with the scope `write`.
        write: Called with each line of output.
    """

    def __init__(self, base_url: str, key: str, write: Callable[[str], object]) -> None:
        self.base_url = base_url
        self.key = key
        self.write = write
        messages = [json.loads(line) for line in CONVERSATION.read_text(encoding="utf-8").splitlines()]
        self.user_id = messages[0]["user_id"]
        self.session_id = messages[0]["session_id"]
        self.agent = {name: messages[0][name] for name in ("agent_id", "source")}
        envelope = {"user_id", "session_id", "agent_id", "source"}
        self.messages = [{k: v for k, v in message.items() if k not in envelope} for message in messages]

    def run(self) -> None:
        """Import the conversation, wait for its builds, and print the memory. Raise `StepFailed` if a call fails."""
        self._import()
        self._show_moments()
        self._show_reload()
        self._show_context()

    def _import(self) -> None:
        self.write(f"\n1. The application posts the {len(self.messages)} messages of a conversation.")
        for start in range(0, len(self.messages), BATCH):
            answer = self._call(
                "POST",
                f"sessions/{self.session_id}/messages",
                user_id=self.user_id,
                **self.agent,
                messages=self.messages[start : start + BATCH],
            )
            for job in answer["jobs"]:
                self._wait_for(job["job_id"])
            self.write(f"   {start + len(answer['messages'])} messages are stored.")

    def _wait_for(self, job_id: str) -> None:
        deadline = time.monotonic() + BUILD_TIMEOUT
        while time.monotonic() < deadline:
            job = self._call("GET", f"jobs/{job_id}", user_id=self.user_id)
            if job["status"] not in ("queued", "processing"):
                if job["error"] or job["process"] == "build_moments":
                    self.write(f"   Background job {job['process']}: {job['status']} {job['error']}".rstrip())
                return
            time.sleep(0.2)
        self.write(f"   Job {job_id} is still {job['status']}: {job['error'] or 'is the worker running?'}")

    def _show_moments(self) -> None:
        moments = self._call("GET", "moments", user_id=self.user_id, session_id=self.session_id)["moments"]
        self.write(f"\n2. The platform has written {len(moments)} moments: short records of what happened. The newest:")
        for row in moments[:MOMENTS]:
            moment = self._call("GET", f"moments/{row['key']}", user_id=self.user_id)
            self.write(f"   {moment['key']}: {_beginning(moment['summary'], LINE)}")
        profile = self._call("GET", f"users/{self.user_id}")
        summary = _beginning(profile["summary"], 2 * LINE).replace("\n", "\n   ")
        self.write(f"\n3. The profile of {self.user_id} says who this person is:\n   {summary}")

    def _show_reload(self) -> None:
        live = self._call("GET", f"sessions/{self.session_id}/messages", user_id=self.user_id)
        if live["has_partition_event"]:
            number = f"{len(live['messages'])} messages instead of {len(self.messages)}"
            self.write(f"\n4. To continue the conversation, the model needs only {number}:")
            self.write("   a summary of the older messages, and the newest messages word for word.")

    def _show_context(self) -> None:
        """Ask a question in a new session. Only memory contains the answer."""
        session_id = f"{self.session_id}-later"
        greeting = {"role": "user", "content": "Good morning!", "external_id": "later-001"}
        self._call("POST", f"sessions/{session_id}/messages", user_id=self.user_id, **self.agent, messages=[greeting])
        fields = {"query": QUESTION, "max_tokens": QUESTION_TOKENS, "format": "markdown"}
        context = self._call("GET", "memory/context", user_id=self.user_id, session_id=session_id, **fields)
        self.write(f"\n5. In a new conversation, the person asks: {QUESTION}")
        self.write("   The context for the model contains these lines, among others:")
        for item in [one for layer in context["layers"] if layer["name"] == "retrieved" for one in layer["items"]]:
            self.write(f"   - {_beginning(' '.join(item['text'].split()), LINE)}")

    def _call(self, method: str, path: str, **fields: Any) -> Any:
        url, body = f"{self.base_url}/api/v1/{quote(path)}", None
        if method == "GET":
            url += f"?{urlencode(fields)}" if fields and not path.startswith("users/") else ""
        else:
            body = json.dumps(fields).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310 (our own site)
        try:
            with open_url(request, timeout=60) as response:
                return json.load(response)
        except HTTPError as error:
            raise StepFailed(f"{method} {path} failed with status {error.code}{_detail(error)}") from error
        except (OSError, HTTPException, ValueError) as error:
            raise StepFailed(f"{method} {path} got no response ({type(error).__name__})") from error


def _detail(error: HTTPError) -> str:
    """Return the error message of the API in one line, or a blank string if the response has none."""
    try:
        [first, *_] = json.load(error)["errors"]
        return f": {' '.join(first['detail'].split())}"
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return ""


def _beginning(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars].rpartition(' ')[0]} …"
