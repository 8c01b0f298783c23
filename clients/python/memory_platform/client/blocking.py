"""The client without `await`. `make clients` generates it from `asynchronous.py`."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import quote

import httpx2

from memory_platform.client import answers
from memory_platform.client.errors import Refused, Unreachable
from memory_platform.client.messages import Said, batches, joined, prepared
from memory_platform.client.retries import pause_before

PAGE = 200  # turns


class Client:
    """Connections to a platform, which several threads may share.

    Args:
        url: The site's URL. Default: the environment variable MEMORY_URL, or http://localhost:8000.
        key: An API key. Default: the environment variable MEMORY_KEY.
        embedded: Run a site on this machine instead. The first call starts it, and waits until it is ready. The value
            is the folder for its data. True is the environment variable DATA_DIR, or `.data`. When the last client is
            closed, or its process exits, the site stops.
        attempts: The maximum number of attempts per call.
        timeout: The seconds to wait for a response.
        http: An HTTP client. The caller closes it, and its settings are not changed.

    Raises:
        CannotStart: `embedded` requires the server, which is not installed.
        ValueError: There is no key.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        embedded: bool | str | Path = False,
        attempts: int = 5,
        timeout: float = 30.0,
        http: httpx2.Client | None = None,
    ) -> None:
        self._site = None
        if embedded:
            from memory_platform.client.embedded import Site  # requires Linux or macOS

            folder = (os.environ.get("DATA_DIR") or ".data") if embedded is True else embedded
            self._site = Site(Path(folder))
        else:
            self._url = url or os.environ.get("MEMORY_URL") or "http://localhost:8000"
            self._key = key or os.environ.get("MEMORY_KEY", "")
            if not self._key:
                raise ValueError("There is no API key. Pass `key`, or set the environment variable MEMORY_KEY.")
        self._attempts = attempts
        # A proxy in the environment can't reach this machine's own server.
        self._http = http or httpx2.Client(timeout=timeout, trust_env=not embedded)
        self._is_ours = http is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Stop the embedded site, unless others use it."""
        if self._is_ours:
            self._http.close()
        if self._site:
            self._site.close()

    def call(self, method: str, path: str, *, repeatable: bool | None = None, **sent: Any) -> Any:
        """Call an operation of the API.

        Args:
            method: The HTTP method.
            path: The path below `/api/v1/`, such as `entities`. Quote ids and names in it.
            repeatable: Whether a retry is safe. Default: only for reads.
            sent: `params` and `json`. Fields that are None are not sent.

        Returns:
            The response: JSON, None if it is empty, or bytes for other types.

        Raises:
            Refused: The platform rejected the request.
            Unreachable: There was no response.
            CannotStart: The embedded site does not start.
        """
        repeatable = method == "GET" if repeatable is None else repeatable
        sent = {kind: _without_none(fields) for kind, fields in sent.items()}
        for attempt in range(self._attempts):
            response, trouble = self._ask(method, path, sent)
            pause = pause_before(attempt, response, repeatable=repeatable)
            if pause is None or attempt == self._attempts - 1:
                break
            time.sleep(pause)
        if response is None:
            raise Unreachable(f"{method} {path}: {trouble!r}") from trouble
        if not response.is_success:
            raise Refused.by(response)
        return _content(response)

    def _ask(self, method: str, path: str, sent: dict[str, Any]) -> tuple[httpx2.Response | None, Exception | None]:
        url, key = self._address()
        headers = {"Authorization": f"Bearer {key}"}
        try:
            return self._http.request(method, f"{url.rstrip('/')}/api/v1/{path}", headers=headers, **sent), None
        except httpx2.RequestError as error:
            return None, error

    def _address(self) -> tuple[str, str]:
        """Return the site's URL and key. Start an embedded site if it isn't running. Its port varies."""
        if self._site:
            return self._site.address()
        return self._url, self._key


class Memory:
    """One person's memory.

    Args:
        user_id: Your id of the person. Optional with a user's key.
        session_id: The default conversation of calls.
        agent_id: Your id of the assistant.
        client: A client to use, for example for several people. It is not closed together with this object.
        options: The options of a new `Client`: `url`, `key`, `embedded`, …
    """

    def __init__(
        self,
        user_id: str | None = None,
        *,
        session_id: str = "default",
        agent_id: str | None = None,
        client: Client | None = None,
        **options: Any,
    ) -> None:
        self.user_id, self.session_id, self.agent_id = user_id, session_id, agent_id
        self.client = client or Client(**options)
        self._is_ours = client is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless the client was passed as an argument."""
        if self._is_ours:
            self.client.close()

    def session(self, session_id: str) -> "Memory":
        """Return the same person's memory with another default conversation."""
        return Memory(self.user_id, session_id=session_id, agent_id=self.agent_id, client=self.client)

    # --- messages ---

    def add(
        self,
        said: Said,
        *,
        session_id: str | None = None,
        source: str | None = None,
        context_id: str | None = None,
    ) -> answers.Appended:
        """Add messages to a conversation.

        Args:
            said: The user's text, a message (`role`, `content`, …), or several messages.
            session_id: The conversation.
            source: The source of a new conversation.
            context_id: The id of the context that the assistant used.
        """
        path = self._in_session(session_id, "messages")
        about = {"user_id": self.user_id, "agent_id": self.agent_id, "source": source, "context_id": context_id}
        added = []
        for batch in batches(prepared(said)):
            added.append(self.client.call("POST", path, json=about | {"messages": batch}, repeatable=True))
        return joined(added)

    def messages(self, *, session_id: str | None = None, limit: int | None = None) -> answers.LiveMessages:
        """Return the messages to replay to a model: the newest turns, after the boundary if there is one."""
        asked = {"user_id": self.user_id, "view": "live", "limit": limit}
        path = self._in_session(session_id, "messages")
        return cast(answers.LiveMessages, self.client.call("GET", path, params=asked))

    def transcript(self, *, session_id: str | None = None, after: int = -1) -> Iterator[answers.Message]:
        """Yield all messages of a conversation after a sequence."""
        path, has_more = self._in_session(session_id, "messages"), True
        while has_more:
            asked = {"user_id": self.user_id, "view": "all", "after": after, "limit": PAGE}
            page = cast(answers.MessagePage, self.client.call("GET", path, params=asked))
            for message in page["messages"]:
                yield message
                after = message["sequence"]
            has_more = page["has_more"]

    def sessions(self, *, limit: int | None = None, offset: int | None = None) -> answers.Sessions:
        """Return the person's conversations, latest activity first."""
        asked = {"user_id": self.user_id, "limit": limit, "offset": offset}
        return cast(answers.Sessions, self.client.call("GET", "sessions", params=asked))

    def delete_session(self, session_id: str) -> None:
        """Delete a conversation's transcript. Memory derived from it stays."""
        self.client.call("DELETE", self._in_session(session_id), params={"user_id": self.user_id})

    # --- memory ---

    def context(
        self,
        query: str = "",
        *,
        session_id: str | None = None,
        max_tokens: int | None = None,
        format: answers.Format | None = None,
        layers: Iterable[str] | None = None,
        retrieval: answers.Retrieval | None = None,
        plan: answers.Plan | None = None,
        as_of: str | None = None,
    ) -> answers.Context:
        """Return the memory for a model's next answer. Send its `context` to the model.

        Args:
            query: The user's latest message.
            session_id: The conversation.
            max_tokens: The budget.
            format: The format of `context`. `messages` is a list for a chat model.
            layers: The layers to include. Default: all.
            retrieval: Whether to search memory for the query.
            plan: `stable` for a text that seldom changes.
            as_of: Return what was known at this time (with a UTC offset).
        """
        asked = {
            "user_id": self.user_id,
            "agent_id": self.agent_id,
            "session_id": session_id or self.session_id,
            "query": query,
            "max_tokens": max_tokens,
            "format": format,
            "layers": None if layers is None else list(layers),
            "retrieval": retrieval,
            "plan": plan,
            "as_of": as_of,
        }
        return cast(answers.Context, self.client.call("POST", "memory/context", json=asked, repeatable=True))

    def search(
        self,
        query: str,
        *,
        kinds: Iterable[answers.Kind] | None = None,
        match_count: int | None = None,
        mode: answers.Mode | None = None,
        about: str | None = None,
        since: str | None = None,
        until: str | None = None,
        as_of: str | None = None,
    ) -> answers.Found:
        """Search memory. Return the results, best first.

        Args:
            query: Words, or a question.
            kinds: Facts, moments, turns. Default: all.
            match_count: The maximum number of results.
            mode: By words, by meaning, or by both. Default: both.
            about: Only facts about this person: `user`, or a key of `people`.
            since: Only results from this time on (with a UTC offset).
            until: Only results before this time (with a UTC offset).
            as_of: Search what was known at this time.
        """
        asked = {
            "user_id": self.user_id,
            "agent_id": self.agent_id,
            "query": query,
            "kinds": None if kinds is None else list(kinds),
            "match_count": match_count,
            "mode": mode,
            "about": about,
            "since": since,
            "until": until,
            "as_of": as_of,
        }
        return cast(answers.Found, self.client.call("POST", "memory/search", json=asked, repeatable=True))

    def moments(self, **filters: Any) -> answers.Moments:
        """Return a page of moments, latest first. `filters` are those of `GET moments`."""
        asked = {"user_id": self.user_id} | filters
        return cast(answers.Moments, self.client.call("GET", "moments", params=asked))

    def moment(self, key: str) -> answers.Moment:
        """Return a moment in full."""
        path = f"moments/{quote(key, safe='')}"
        return cast(answers.Moment, self.client.call("GET", path, params={"user_id": self.user_id}))

    def facts(self, **filters: Any) -> answers.Facts:
        """Return a page of facts, newest first. `filters` are those of `GET facts`."""
        asked = {"user_id": self.user_id} | filters
        return cast(answers.Facts, self.client.call("GET", "facts", params=asked))

    def correct(self, fact_id: str, content: str) -> answers.Correction:
        """Replace the text of a fact, and of all facts with the same meaning."""
        body = {"user_id": self.user_id, "content": content}
        return cast(answers.Correction, self.client.call("PATCH", f"facts/{fact_id}", json=body))

    def withdraw(self, fact_id: str) -> answers.Correction:
        """Remove a fact that was never true, and all facts with the same meaning."""
        asked = {"user_id": self.user_id}
        return cast(answers.Correction, self.client.call("DELETE", f"facts/{fact_id}", params=asked))

    def people(self, **filters: Any) -> answers.People:
        """Return a page of other people in memory. `filters` are those of `GET users/{user_id}/people`."""
        path = f"{self._user()}/people"
        return cast(answers.People, self.client.call("GET", path, params=filters))

    def person(self, key: str) -> answers.KnownPerson:
        """Return another person in memory, with a profile."""
        path = f"{self._user()}/people/{quote(key, safe='')}"
        return cast(answers.KnownPerson, self.client.call("GET", path))

    def profile(self) -> answers.Profile:
        """Return the person's profile."""
        return cast(answers.Profile, self.client.call("GET", self._user()))

    def update_profile(self, **fields: Any) -> answers.Profile:
        """Change fields of the profile: summary, interests, preferred_topics, timezone, metadata."""
        return cast(answers.Profile, self.client.call("PATCH", self._user(), json=fields, repeatable=True))

    def export(self) -> bytes:
        """Return all stored data about the person as a zip of JSON lines."""
        return cast(bytes, self.client.call("GET", f"{self._user()}/export"))

    def erase(self) -> answers.Erased:
        """Erase the person and all stored data about them."""
        return cast(answers.Erased, self.client.call("DELETE", self._user()))

    # --- jobs ---

    def build(self, *, session_id: str | None = None, force: bool = False) -> answers.Accepted:
        """Queue a build of a conversation's moments. With `force`, few new turns suffice."""
        body = {"user_id": self.user_id, "session_id": session_id or self.session_id, "force": force}
        return cast(answers.Accepted, self.client.call("POST", "moments/build", json=body))

    def compact(self, *, session_id: str | None = None) -> answers.Accepted:
        """Queue a digest of a conversation. The next load starts with it."""
        body = {"user_id": self.user_id}
        return cast(answers.Accepted, self.client.call("POST", self._in_session(session_id, "compact"), json=body))

    def job(self, job_id: str) -> answers.Job:
        """Return a job with its status."""
        asked = {"user_id": self.user_id}
        return cast(answers.Job, self.client.call("GET", f"jobs/{job_id}", params=asked))

    # --- paths ---

    def _in_session(self, session_id: str | None, *rest: str) -> str:
        return "/".join(("sessions", quote(session_id or self.session_id, safe=""), *rest))

    def _user(self) -> str:
        if self.user_id is None:
            raise ValueError("This call needs a user_id: Memory(user_id).")
        return f"users/{quote(self.user_id, safe='')}"


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _content(response: httpx2.Response) -> Any:
    if not response.content:
        return None
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    return response.json() if is_json else response.content
