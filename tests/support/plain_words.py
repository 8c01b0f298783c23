"""Internal names of processes, classes, errors and actors, and terms of the code, which pages don't show."""

import re
from functools import cache

from moments_app.engines.interface import FAILURE_CAUSES
from moments_app.jobs.process import processes

# Parts of a page that are not prose: code, addresses, and stored text of other people.
_NO_TEXT = re.compile(r"<(script|style|template|pre|code|textarea|select)\b.*?</\1>|<[^>]*>|rem://\S*", re.DOTALL)
# Pages about events show them under the names that the API gives them.
_EVENTS = re.compile(r"/(event|webhookendpoint|webhookdelivery)/")
# Pages show the address of a row on hover. Its link is in words.
_ADDRESS = re.compile(r"<a [^>]*>\s*(rem://[^<]*)")


def text_of(html: str) -> str:
    """Return the text of a page."""
    body = html[html.index("<body") :] if "<body" in html else html
    return re.sub(r"\s+", " ", _NO_TEXT.sub(" ", body))


def internal_names(url: str, html: str) -> set[str]:
    """Return the internal names that a page shows."""
    if _EVENTS.search(url):
        return set()
    return {match[0] for match in _names().finditer(text_of(html))} | {*_ADDRESS.findall(html)}


@cache
def _names() -> re.Pattern[str]:
    names = [process.name for process in processes() if "_" in process.name]
    kinds = [kind for kind in FAILURE_CAUSES if "_" in kind]
    ours = ["streams?", "shards?", r"consolidat\w+", "digests?", r"settl\w+", "atoms?", r"evict\w*", "absorbed", "lag"]
    ours += ["turns that came", "later attempt"]
    return re.compile(
        rf"\b({'|'.join([*names, *kinds])})\b|\b\w+_app\.\w+|\b(operator|job|retraction|command):\w[\w-]*"
        rf"|\[TOOL RESULT|(?i:\b({'|'.join(ours)})\b)"
    )
