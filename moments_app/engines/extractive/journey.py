"""The journey: the person's way so far, a dated line of each of the latest moments."""

from collections.abc import Sequence

from moments_app.engines.calls.moments import DraftMoment, KnownMoment, MomentRequest
from moments_app.engines.extractive.language import sentences
from moments_app.engines.transcript import Turn

JOURNEY_MAX = 700  # characters
JOURNEY_STEP_MAX = 80  # characters about one moment


def journey_text(request: MomentRequest, moments: Sequence[DraftMoment]) -> str:
    """Return since when, how many moments, and a dated line for each of the latest; of too many the oldest drop out."""
    way = request.journey.then("", [_known(request.turns, moment) for moment in moments])
    first, last = (f"{time:%Y-%m-%d}" for time in (way.since or request.turns[0].created_at, way.moments[0].ends_at))
    when = first if first == last else f"{first} to {last}"
    text = ""
    for step in map(_step, way.moments):  # the latest first
        if len(step) + len(text) > JOURNEY_MAX:
            break
        text = f"{step} {text}".strip()
    return f"{when}, {way.count} moment{'s' * (way.count != 1)}: {text}"


def _known(turns: Sequence[Turn], moment: DraftMoment) -> KnownMoment:
    times = [turn.created_at for turn in turns[moment.starts_at_message_idx : moment.ends_at_message_idx + 1]]
    return KnownMoment(moment.name, moment.summary, min(times), max(times))


def _step(moment: KnownMoment) -> str:
    """Return one moment as a line: its day, its name, and the first sentence of its summary, or its beginning."""
    said = next(iter(sentences(moment.summary)), " ".join(moment.summary.split()))
    if len(said) > JOURNEY_STEP_MAX:
        said = f"{said[:JOURNEY_STEP_MAX].rsplit(' ', 1)[0]} …"
    return f"{moment.ends_at:%Y-%m-%d} {moment.name[:60].replace('-', ' ')}: {said}"
