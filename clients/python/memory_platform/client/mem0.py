"""mem0's methods for a platform's memory. To switch a project from mem0, change the import:

    from memory_platform.client.mem0 import Memory

    m = Memory()
    m.add("I love sci-fi movies.", user_id="alex")
    m.search("What movies do I love?", filters={"user_id": "alex"})

Memories are facts. Facts are formed in the background, so a search also finds the messages themselves, which have ids
but can't be updated or deleted.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from memory_platform.client import blocking
from memory_platform.client.answers import Fact
from memory_platform.client.errors import Refused
from memory_platform.client.messages import Said

PAGE = 200  # facts, or changes of a fact
MAX_RESULTS = 100  # of a search
FACT = "rem://atoms/"

Results = dict[str, list[dict[str, Any]]]


class Memory:
    """The memory of all users, with methods, arguments and responses like those of mem0's `Memory` (version 2).

    Args:
        api_key: An API key of the platform. Default: the environment variable MEMORY_KEY.
        options: Other options of a `Client`: `url`, `embedded`, …
    """

    def __init__(self, *, api_key: str | None = None, **options: Any) -> None:
        self.client = blocking.Client(key=api_key, **options)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def add(
        self,
        messages: Said,
        *,
        user_id: str,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Results:
        """Add messages to the conversation `run_id`. Return them, because their facts are formed later.

        Without `run_id`, each agent has one conversation with the user.
        """
        said = {"role": "user", "content": messages} if isinstance(messages, str) else messages
        several = [{"metadata": metadata, **message} for message in ([said] if isinstance(said, Mapping) else said)]
        added = self._of(user_id, agent_id).add(several, session_id=run_id or agent_id)
        refs = [f"rem://sessions/{added['session_id']}/messages/{place['sequence']}" for place in added["messages"]]
        return {
            "results": [
                {"id": _id(user_id, ref), "memory": message.get("content") or "", "event": "ADD"}
                for ref, message in zip(refs, several, strict=True)
            ]
        }

    def search(self, query: str, *, filters: Mapping[str, str], top_k: int = 20) -> Results:
        """Search memory. Return facts, moments and messages, best first.

        Args:
            query: Words, or a question.
            filters: The `user_id`, and perhaps an `agent_id`, whose shared memory is also searched. Other filters are
                not supported.
            top_k: The maximum number of results, up to 100.
        """
        memory = self._of(**filters)
        found = memory.search(query, match_count=min(top_k, MAX_RESULTS))["results"]
        return {
            "results": [
                {
                    "id": _id(memory.user_id, result["ref"]),
                    "memory": result["content"],
                    "user_id": memory.user_id,
                    "created_at": result["time"],
                    "score": result["score"],
                    "metadata": {"kind": result["kind"]},
                }
                for result in found
            ]
        }

    def get_all(self, *, filters: Mapping[str, str], top_k: int = 20) -> Results:
        """Return the current facts about a user, newest first.

        Args:
            filters: The `user_id`. Other filters are not supported.
            top_k: The maximum number of facts.
        """
        memory = self._of_user(**filters)
        found: list[Fact] = []
        has_more = True
        while has_more and len(found) < top_k:
            after = found[-1]["fact_id"] if found else None
            page = memory.facts(limit=min(top_k - len(found), PAGE), after=after)
            found, has_more = found + page["facts"], page["has_more"]
        return {"results": [_memory(memory.user_id, fact) for fact in found]}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return a memory with its current text, or None if it doesn't exist or was deleted."""
        try:
            *_, fact = self._versions(memory_id)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise
        return None if fact["ended_at"] else _memory(_place(memory_id)[0], fact)

    def update(self, memory_id: str, data: str) -> dict[str, str]:
        """Correct the text of a memory."""
        *_, fact = self._versions(memory_id)
        self._of(_place(memory_id)[0]).correct(fact["fact_id"], data)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Withdraw a memory. Needs a key with the scope `admin`."""
        *_, fact = self._versions(memory_id)
        self._of(_place(memory_id)[0]).withdraw(fact["fact_id"])
        return {"message": "Memory deleted successfully!"}

    def delete_all(self, *, user_id: str) -> dict[str, str]:
        """Erase a user with all messages and memories. Needs a key with the scope `admin`."""
        try:
            self._of(user_id).erase()
        except Refused as refused:
            if refused.status != 404:
                raise
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return the history of a memory, oldest first: its creation, its corrections and its end."""
        texts: list[str | None] = []
        times: list[str] = []
        for fact in self._versions(memory_id):
            edits = [change for change in self._changes(memory_id, fact) if "content" in change["before"]]
            texts += [*(edit["before"]["content"] for edit in edits), fact["content"]]
            times += [fact["created_at"], *(edit["created_at"] for edit in edits)]
        if fact["ended_at"]:
            texts.append(None)
            times.append(fact["ended_at"])
        return [
            {
                "memory_id": memory_id,
                "old_memory": old,
                "new_memory": new,
                "event": "ADD" if old is None else "DELETE" if new is None else "UPDATE",
                "created_at": time,
            }
            for old, new, time in zip([None, *texts], texts, times, strict=False)
        ]

    def _of_user(self, user_id: str) -> blocking.Memory:
        return self._of(user_id)

    def _of(self, user_id: str, agent_id: str | None = None) -> blocking.Memory:
        return blocking.Memory(user_id, agent_id=agent_id, client=self.client)

    def _versions(self, memory_id: str) -> list[Fact]:
        """Return a fact, and the facts that replaced it."""
        user_id, fact_id = _place(memory_id)
        versions: list[Fact] = []
        following: str | None = fact_id
        while following:
            fact: Fact = self.client.call("GET", f"facts/{quote(following, safe='')}", params={"user_id": user_id})
            versions.append(fact)
            following = fact.get("replaced_by")
        return versions

    def _changes(self, memory_id: str, fact: Fact) -> list[dict[str, Any]]:
        """Return the changes of a fact, oldest first."""
        asked: dict[str, Any] = {"user_id": _place(memory_id)[0], "limit": PAGE}
        changes: list[dict[str, Any]] = []
        has_more = True
        while has_more:
            page = self.client.call("GET", f"facts/{fact['fact_id']}/history", params=asked)
            changes, has_more = changes + page["history"], page["has_more"]
            asked["after"] = changes[-1]["change_id"] if changes else None
        return changes[::-1]


MemoryClient = Memory


def _memory(user_id: str | None, fact: Fact) -> dict[str, Any]:
    return {
        "id": _id(user_id, fact["uri"]),
        "memory": fact["content"],
        "user_id": user_id,
        "created_at": fact["said_at"],
        "updated_at": fact["created_at"],
    }


def _id(user_id: str | None, ref: str) -> str:
    """Return an id that includes the user, because some of mem0's methods receive only this id."""
    return f"{user_id}/{ref.removeprefix(FACT)}"


def _place(memory_id: str) -> tuple[str, str]:
    """Split an id into the ids of its user and its fact.

    Raises:
        ValueError: It is not the id of a fact.
    """
    user_id, _, fact_id = memory_id.partition("/")
    if not fact_id or "/" in fact_id:
        raise ValueError(f"{memory_id} is not the id of a fact.")
    return user_id, fact_id
