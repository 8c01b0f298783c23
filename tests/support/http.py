"""Requests to a site that runs, short to write in tests."""

import urllib.error
import urllib.request


def status_of(asked: urllib.request.Request | str, **headers: str) -> int:
    """Return the status of an answer, having read all of it.

    Args:
        asked: a request, or an address.
        headers: of a request to that address.
    """
    request = urllib.request.Request(asked, headers=headers) if isinstance(asked, str) else asked
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
