"""Find the people in some sentences: named speakers, and people who are mentioned by name."""

import re
from collections import Counter
from collections.abc import Iterable

from moments_app.engines import times
from moments_app.engines.extractive.sentences import Sentence
from moments_app.engines.tables import any_of

_NAME = re.compile(
    rf"\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er|[Tt]heir) (?:\w+ )?(?:{any_of('kin', 'pets')}),? "
    r"([A-Z][a-zà-öø-ÿ]+(?:-[A-Z][a-zà-öø-ÿ]+)?)\b|\b(?:named|called|name is|name's) ([A-Z][a-zà-öø-ÿ]{2,})\b"
)
_CAPITALISED = re.compile(
    r"(?<=[a-zà-öø-ÿ,;] )([A-Z][a-zà-öø-ÿ]{2,})(?='s\b| (?:said|says|told|asked|wants|thinks|called)\b)"
)
_NO_NAMES = times.calendar_names().union("Just Not Very Really So Still Going Glad Sorry Happy Good Fine Sure".split())


def persons_in(own: Iterable[Sentence]) -> list[str]:
    """Return the named speakers, and the people who are mentioned by name."""
    counts = Counter[str]()
    for sentence in own:
        if sentence.speaker.is_named:
            counts[sentence.speaker.name] += 1
        names = [name for match in _NAME.findall(sentence.text) for name in match if name]
        counts.update(name for name in names + _CAPITALISED.findall(sentence.text) if name not in _NO_NAMES)
    return [name for name, _ in counts.most_common(12)]
