"""Recognize sentences that need context, by certain phrases or by a pronoun without an antecedent."""

import re

_LEANING = {
    "en": re.compile(
        r"^(?:it|its|they|their|he|his|she|her|this|that|these|those|there|which|who|here|the same|one of"
        r"|then|otherwise|instead|so|therefore|neither|nor|both|such|or|because|where|when|while"
        r"|though|although|until|until then|after that"
        r"|before that|in (?:that|this|any) case|at (?:that|this) (?:point|time)|(?:that|this|either) way)\b"
        r"(?! (?:is|are|was|were) (?:my|our)\b)(?!'s (?:my|our)\b)"
        r"(?! (?:year|month|week|weekend|morning|spring|summer|fall|winter)\b)(?!(?: \w+){1,12}, (?:I|we|my|our)\b)"
        r"|^(?:[\w']+ ){0,4}(?:it|them|this|that|those|these|something|stuff|one)(?:[,.!]|$)"
        r"|^(?:I|we) (?:\w+ )?(?:love|like|enjoy|hate)d? (?:that|how|it|this|them|what)\b|\blike (?:this|that)\b"
        r"|\bthe (?:other|others|rest|former|latter|(?:first|last|next|other) one)(?= (?:is|are|was|were)\b|[.,;!]|$)"
        r"|\b(?:I'm|I am|we're|we are) (?:off to|on (?:my|our|the) way|\w+ing\b[^.;]*\b(?:right now|at the moment))",
        re.IGNORECASE,
    ),
    "de": re.compile(
        r"^(?:es|er|sie|dies|dann|da|dort|deshalb|deswegen|außerdem|trotzdem|danach|dazu|damit|darum|das (?:ist|war|hat"
        r"|wird|klingt|freut|stimmt|macht))\b",
        re.IGNORECASE,
    ),
    "es": re.compile(r"^(?:eso|esto|él|ella|ellos|ellas|entonces|allí|luego|además|por eso|así que|es que)\b", re.I),
    "fr": re.compile(r"^(?:ça|cela|c'(?:est|était)|il|elle|ils|elles|ensuite|alors|puis|donc|là)\b", re.IGNORECASE),
    "zh": re.compile(r"^(?:它|他|她|这|那|然后|所以|而且|因此)"),
    "ru": re.compile(r"^(?:это|он|она|они|оно|там|потом|затем|поэтому|тогда)\b", re.IGNORECASE),
}
_PRONOUN = re.compile(r"\b(?:he|him|his|she|her|hers|they|them|it)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"(?i:\b(?:my|our|an?|the|two|three|some|his|her|their|\d+) [^\W\d_])|(?<=[a-z,] )[A-Z][a-z]"
    r"|[,;] | (?:and|but|because|when) "
    r"|^[A-Z][a-z]{2,} (?!a|the)"
)
_PART = re.compile(r"^[^\w\"“¿¡(]|[:(,;–—-]$")


def leans(text: str, language: str) -> bool:
    """Tell whether a sentence can't be understood without what was said before.

    Args:
        text: a sentence, without interjections before it.
        language: of its turn.
    """
    leaning = _LEANING.get(language)
    if (leaning and leaning.search(text)) or _PART.search(text) or text.count('"') % 2:
        return True
    if language != "en":
        return False
    pronoun = _PRONOUN.search(text)
    return pronoun is not None and not _NAMED.search(text[: pronoun.start()])
