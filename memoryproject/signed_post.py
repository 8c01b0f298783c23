"""A POST of JSON, signed according to Standard Webhooks (standardwebhooks.com)."""

import base64
import hashlib
import hmac
import time

import httpx2

from moments_app.engines.transport import BoundedTransport, TooLarge

SECONDS = 10.0  # for an attempt
ANSWER_BYTES = 100_000


class NotReceived(Exception):
    """The receiver did not accept the message. The text says why, without the URL."""


def post(
    url: str,
    body: bytes,
    message_id: str,
    secret: bytes | None,
    *,
    headers: dict[str, str] | None = None,
    public_only: bool = False,
) -> None:
    """Make one attempt to post JSON. Redirects are not followed.

    Args:
        url: The receiver's URL.
        body: The JSON.
        message_id: The same for each attempt.
        secret: The key of the signature. None for no signature.
        headers: Additional headers.
        public_only: Reject addresses of private networks, and plain HTTP.

    Raises:
        NotReceived: The response was not 2xx.
    """
    if public_only and not url.startswith("https://"):
        raise NotReceived("needs an https URL, unless WEBHOOKS__PRIVATE_ADDRESSES is true")
    signature = {} if secret is None else _signature(body, message_id, secret)
    sent = {"Content-Type": "application/json"} | signature | (headers or {})
    transport = BoundedTransport(timeout=SECONDS, max_bytes=ANSWER_BYTES, public_only=public_only)
    try:
        with httpx2.Client(transport=transport, timeout=SECONDS) as client:
            status = client.post(url, content=body, headers=sent).status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, TooLarge, OSError, ValueError) as error:
        raise NotReceived(f"can't be reached ({type(error).__name__})") from None
    if not 200 <= status < 300:
        raise NotReceived(f"answered with status {status}")


def _signature(body: bytes, message_id: str, secret: bytes) -> dict[str, str]:
    at = str(int(time.time()))
    digest = hmac.new(secret, b".".join((message_id.encode(), at.encode(), body)), hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": message_id, "webhook-timestamp": at, "webhook-signature": signature}
