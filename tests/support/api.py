"""A short REST client for tests. Each response is compared with the OpenAPI schema."""

from typing import Any

from django.test import Client

from tests.support.contract import PREFIX, check


class Api:
    """Sends and receives JSON with a key.

    Args:
        key: The text of an API key. Blank sends none.
    """

    def __init__(self, key: str = "") -> None:
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = Client(raise_request_exception=False)

    def get(self, path: str, **query: Any) -> Any:
        return self._ask("get", path, query_params=query)

    def post(self, path: str, body: Any = None, **fields: Any) -> Any:
        return self._send("post", path, fields if body is None else body)

    def patch(self, path: str, **fields: Any) -> Any:
        return self._send("patch", path, fields)

    def delete(self, path: str, **query: Any) -> Any:
        return self._ask("delete", path, query_params=query)

    def _send(self, method: str, path: str, body: Any) -> Any:
        return self._ask(method, path, data=body, content_type="application/json")

    def _ask(self, method: str, path: str, **arguments: Any) -> Any:
        answer = getattr(self.client, method)(f"{PREFIX}{path}", headers=self.headers, **arguments)
        check(method, answer.request["PATH_INFO"], answer)
        return answer
