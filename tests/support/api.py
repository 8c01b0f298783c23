"""A client of the REST interface, short to write in tests."""

from typing import Any

from django.test import Client


class Api:
    """Speaks JSON with a key.

    Args:
        key: the text of an API key; blank sends none.
    """

    def __init__(self, key: str = "") -> None:
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = Client(raise_request_exception=False)

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/api/v1/{path}", query_params=query, headers=self.headers)

    def post(self, path: str, body: Any = None, **fields: Any) -> Any:
        return self._send("post", path, fields if body is None else body)

    def patch(self, path: str, **fields: Any) -> Any:
        return self._send("patch", path, fields)

    def delete(self, path: str, **query: Any) -> Any:
        return self.client.delete(f"/api/v1/{path}", query_params=query, headers=self.headers)

    def _send(self, method: str, path: str, body: Any) -> Any:
        send = getattr(self.client, method)
        return send(f"/api/v1/{path}", body, content_type="application/json", headers=self.headers)
