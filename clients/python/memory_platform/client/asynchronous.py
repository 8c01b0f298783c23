"""The client with `await`; `blocking.py` is made from this file by `make clients`."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import quote

import httpx2

from memory_platform.client import answers
from memory_platform.client.errors import Refused, Unreachable
from memory_platform.client.messages import Said, batches, joined, prepared
from memory_platform.client.retries import pause_before

PAGE = 200  # turns


class AsyncClient:
    """Connections to a platform; several tasks may share it.

    Args:
        url: of the site; by default MEMORY_URL of the environment, else http://localhost:8000.
        key: an API key; by default MEMORY_KEY of the environment.
        embedded: run a site on this machine instead. The first call starts it, and waits until it serves. The value is
            the folder for its data; True is DATA_DIR of the environment, else `.data`. The last client that closes or
            ends stops the site.
        attempts: maximum number of attempts per call.
        timeout: seconds to wait for an answer.
        http: an HTTP client, which the caller closes; its settings are not changed.

    Raises:
        CannotStart: `embedded` needs the server, which is not installed.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        embedded: bool | str | Path = False,
        attempts: int = 5,
        timeout: float = 30.0,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._site = None
        if embedded:
            from memory_platform.client.embedded import Site  # which needs Linux or macOS

            folder = (os.environ.get("DATA_DIR") or ".data") if embedded is True else embedded
            self._site = Site(Path(folder))
        else:
            self._url = url or os.environ.get("MEMORY_URL") or "http://localhost:8000"
            self._key = key or os.environ["MEMORY_KEY"]
        self._attempts = attempts
        # No proxy of the environment reaches this machine.
        self._http = http or httpx2.AsyncClient(timeout=timeout, trust_env=not embedded)
        self._is_ours = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, and stop the embedded site unless others use it."""
        if self._is_ours:
            await self._http.aclose()
        if self._site:
            await asyncio.to_thread(self._site.close)

    async def call(self, method: str, path: str, *, repeatable: bool | None = None, **sent: Any) -> Any:
        """Call an operation of the REST interface.

        Args:
            method: such as GET.
            path: below `/api/v1/`, such as `entities`; parts that are not fixed are to be quoted.
            repeatable: whether a retry is safe; by default only if it only reads.
            sent: `params` and `json`, without what is None.

        Returns:
            The answer: JSON, None if it is empty, bytes for anything else.

        Raises:
            Refused: the platform rejects the request.
            Unreachable: no answer came.
            CannotStart: the embedded site does not start.
        """
        repeatable = method == "GET" if repeatable is None else repeatable
        sent = {kind: _without_none(fields) for kind, fields in sent.items()}
        for attempt in range(self._attempts):
            response, trouble = await self._ask(method, path, sent)
            pause = pause_before(attempt, response, repeatable=repeatable)
            if pause is None or attempt == self._attempts - 1:
                break
            await asyncio.sleep(pause)
        if response is None:
            raise Unreachable(f"{method} {path}: {trouble!r}") from trouble
        if not response.is_success:
            raise Refused.by(response)
        return _content(response)

    async def _ask(
        self, method: str, path: str, sent: dict[str, Any]
    ) -> tuple[httpx2.Response | None, Exception | None]:
        url, key = await self._address()
        headers = {"Authorization": f"Bearer {key}"}
        try:
            return await self._http.request(method, f"{url.rstrip('/')}/api/v1/{path}", headers=headers, **sent), None
        except httpx2.RequestError as error:
            return None, error

    async def _address(self) -> tuple[str, str]:
        """Return the site's URL and key. An embedded site is started unless it runs; its port changes each time."""
        if self._site:
            return await asyncio.to_thread(self._site.address)
        return self._url, self._key


class AsyncMemory:
    """What is remembered of one person.

    Args:
        user_id: your id of the person; with a person's own key it may be left out.
        session_id: of the conversation, where a call names no other.
        agent_id: your id of the assistant.
        client: whose connections are used, say for several people; it is not closed with this.
        options: of an `AsyncClient` of its own: `url`, `key`, `embedded`, …
    """

    def __init__(
        self,
        user_id: str | None = None,
        *,
        session_id: str = "default",
        agent_id: str | None = None,
        client: AsyncClient | None = None,
        **options: Any,
    ) -> None:
        self.user_id, self.session_id, self.agent_id = user_id, session_id, agent_id
        self.client = client or AsyncClient(**options)
        self._is_ours = client is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, unless they are a client's that was given."""
        if self._is_ours:
            await self.client.aclose()

    def session(self, session_id: str) -> "AsyncMemory":
        """Return the same memory in another conversation."""
        return AsyncMemory(self.user_id, session_id=session_id, agent_id=self.agent_id, client=self.client)

    # --- what was said ---

    async def add(
        self,
        said: Said,
        *,
        session_id: str | None = None,
        source: str | None = None,
        context_id: str | None = None,
    ) -> answers.Appended:
        """Add what was said.

        Args:
            said: a text of the user's, a message (`role`, `content`, …), or several.
            session_id: of the conversation.
            source: where it comes from, if it is new.
            context_id: of the context that the assistant had.
        """
        path = self._in_session(session_id, "messages")
        about = {"user_id": self.user_id, "agent_id": self.agent_id, "source": source, "context_id": context_id}
        added = []
        for batch in batches(prepared(said)):
            added.append(await self.client.call("POST", path, json=about | {"messages": batch}, repeatable=True))
        return joined(added)

    async def messages(self, *, session_id: str | None = None, limit: int | None = None) -> answers.LiveMessages:
        """Return what is to be replayed of a conversation: the newest turns, behind the boundary if there is one."""
        asked = {"user_id": self.user_id, "view": "live", "limit": limit}
        path = self._in_session(session_id, "messages")
        return cast(answers.LiveMessages, await self.client.call("GET", path, params=asked))

    async def transcript(self, *, session_id: str | None = None, after: int = -1) -> AsyncIterator[answers.Message]:
        """Yield all of a conversation, from the turn after a sequence on."""
        path, has_more = self._in_session(session_id, "messages"), True
        while has_more:
            asked = {"user_id": self.user_id, "view": "all", "after": after, "limit": PAGE}
            page = cast(answers.MessagePage, await self.client.call("GET", path, params=asked))
            for message in page["messages"]:
                yield message
                after = message["sequence"]
            has_more = page["has_more"]

    async def sessions(self, *, limit: int | None = None, offset: int | None = None) -> answers.Sessions:
        """Return the person's conversations, latest activity first."""
        asked = {"user_id": self.user_id, "limit": limit, "offset": offset}
        return cast(answers.Sessions, await self.client.call("GET", "sessions", params=asked))

    async def delete_session(self, session_id: str) -> None:
        """Delete a transcript; what was remembered of it stays."""
        await self.client.call("DELETE", self._in_session(session_id), params={"user_id": self.user_id})

    # --- what is remembered ---

    async def context(
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
        """Return the memory that a model should have before it answers; `context` is to be sent to it.

        Args:
            query: what the user has just said.
            session_id: of the conversation.
            max_tokens: the budget.
            format: of `context`; `messages` is a list for a chat model.
            layers: that are wanted; by default all.
            retrieval: whether memory is searched for the query.
            plan: `stable` for a text that seldom changes.
            as_of: as it was known then, a time with an offset.
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
        return cast(answers.Context, await self.client.call("POST", "memory/context", json=asked, repeatable=True))

    async def search(
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
        """Return what answers a query, best first.

        Args:
            query: words, or a question.
            kinds: facts, moments, turns; by default all.
            match_count: maximum number of results.
            mode: by words, by meaning, or by both, the default.
            about: only facts about this person: `user`, or a key of `people`.
            since: nothing before, a time with an offset.
            until: only what was said before, a time with an offset.
            as_of: as it was known then.
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
        return cast(answers.Found, await self.client.call("POST", "memory/search", json=asked, repeatable=True))

    async def moments(self, **filters: Any) -> answers.Moments:
        """Return a page of moments, latest first; `filters` are those of `GET moments`."""
        asked = {"user_id": self.user_id} | filters
        return cast(answers.Moments, await self.client.call("GET", "moments", params=asked))

    async def moment(self, key: str) -> answers.Moment:
        """Return a moment in full."""
        path = f"moments/{quote(key, safe='')}"
        return cast(answers.Moment, await self.client.call("GET", path, params={"user_id": self.user_id}))

    async def facts(self, **filters: Any) -> answers.Facts:
        """Return a page of facts, what was said last first; `filters` are those of `GET facts`."""
        asked = {"user_id": self.user_id} | filters
        return cast(answers.Facts, await self.client.call("GET", "facts", params=asked))

    async def correct(self, fact_id: str, content: str) -> answers.Correction:
        """Put another text in the place of a fact, and of all that says the same."""
        body = {"user_id": self.user_id, "content": content}
        return cast(answers.Correction, await self.client.call("PATCH", f"facts/{fact_id}", json=body))

    async def withdraw(self, fact_id: str) -> answers.Correction:
        """Take out a fact that never held, and all that says the same."""
        asked = {"user_id": self.user_id}
        return cast(answers.Correction, await self.client.call("DELETE", f"facts/{fact_id}", params=asked))

    async def people(self, **filters: Any) -> answers.People:
        """Return a page of the other people whom memory knows; `filters` are those of `GET users/{user_id}/people`."""
        path = f"{self._user()}/people"
        return cast(answers.People, await self.client.call("GET", path, params=filters))

    async def person(self, key: str) -> answers.KnownPerson:
        """Return another person whom memory knows, with a profile."""
        path = f"{self._user()}/people/{quote(key, safe='')}"
        return cast(answers.KnownPerson, await self.client.call("GET", path))

    async def profile(self) -> answers.Profile:
        """Return what is known of the person."""
        return cast(answers.Profile, await self.client.call("GET", self._user()))

    async def update_profile(self, **fields: Any) -> answers.Profile:
        """Change fields of the profile: summary, interests, preferred_topics, timezone, metadata."""
        return cast(answers.Profile, await self.client.call("PATCH", self._user(), json=fields, repeatable=True))

    async def export(self) -> bytes:
        """Return everything that is kept about the person, as a zip of JSON lines."""
        return cast(bytes, await self.client.call("GET", f"{self._user()}/export"))

    async def erase(self) -> answers.Erased:
        """Erase the person without a trace."""
        return cast(answers.Erased, await self.client.call("DELETE", self._user()))

    # --- work ---

    async def build(self, *, session_id: str | None = None, force: bool = False) -> answers.Accepted:
        """Ask for moments of a conversation; `force` also where few turns wait."""
        body = {"user_id": self.user_id, "session_id": session_id or self.session_id, "force": force}
        return cast(answers.Accepted, await self.client.call("POST", "moments/build", json=body))

    async def compact(self, *, session_id: str | None = None) -> answers.Accepted:
        """Ask for a digest of a conversation, with which the next load begins."""
        body = {"user_id": self.user_id}
        return cast(
            answers.Accepted, await self.client.call("POST", self._in_session(session_id, "compact"), json=body)
        )

    async def job(self, job_id: str) -> answers.Job:
        """Return how work stands."""
        asked = {"user_id": self.user_id}
        return cast(answers.Job, await self.client.call("GET", f"jobs/{job_id}", params=asked))

    # --- addresses ---

    def _in_session(self, session_id: str | None, *rest: str) -> str:
        return "/".join(("sessions", quote(session_id or self.session_id, safe=""), *rest))

    def _user(self) -> str:
        if self.user_id is None:
            raise ValueError("This needs to know whose memory it is: Memory(user_id).")
        return f"users/{quote(self.user_id, safe='')}"


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _content(response: httpx2.Response) -> Any:
    if not response.content:
        return None
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    return response.json() if is_json else response.content
