"""Short requests to a running site, for tests."""

import urllib.error
import urllib.request


def status_of(asked: urllib.request.Request | str, **headers: str) -> int:
    """Read a response completely, and return its status.

    Args:
        asked: A request or a URL.
        headers: The headers of a request to that URL.
    """
    request = urllib.request.Request(asked, headers=headers) if isinstance(asked, str) else asked
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
