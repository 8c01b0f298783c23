"""Recognize sentences that aren't held as true: dreams, wishes, suppositions, questions, and quotes of other people.

What people deny of their home or work is no fact either, but for what is over. What a doctor says is taken as true.

Each language has a few words that tell it. A sentence that none of them is in is taken at its word.
"""

import re
from functools import lru_cache

_SAID = (
    "says|said|thinks|thought|claims|claimed|insists|insisted|reckons|wrote|suggests|suggested|advises|advised"
    "|recommends|recommended|tells me|told me|told us|warned me|keeps saying"
)
_ENGLISH = (
    r"\b(?:dreamed|dreamt|dreaming) (?:that|about|of|I|we|my)\b|\bhad (?:a|this|the) (?:\w+ )?(?:dream|nightmare)\b"
    r"|\bin (?:my|a|the|this) (?:dream|game|story|novel|role-?play|next life)\b|\bmy character\b"
    r"|\b(?:I|we|I'm|we're) wish(?:ing)?\b|\bif only\b|\b(?:I'd|I would|we'd|we would) (?:love|like|be|have|give|go)\b"
    r"|^(?:if|unless|suppose|supposing|imagine|maybe|perhaps|pretend|assuming|let's (?:say|pretend|imagine))\b"
    r"|\b(?:if I|if we) (?:were|was|had|could|lived|ever|won)\b|\bas if I\b"
    r"|\bI (?:might|may|could|would|almost|nearly)\b"
    r"|\b(?:just )?(?:kidding|joking)\b|\bpretend(?:ing|ed)?\b"
    rf"|^(?!I\b|We\b|[^,]{{0,30}}\b(?:doctor|dentist|nurse|vet)\b)[^,]{{1,60}}?\b(?:{_SAID})\b"
    r"(?!-| (?:yes|no|sorry|hi|hello|goodbye|thanks)\b)"
    r"|\b(?:I|we) (?:do not|don't) (?:live|work) (?:in|at|for)\b(?!.*\b(?:any ?more|any longer)\b)"
)
_GERMAN = (
    r"\bgeträumt\b|\bträum(?:e|te) |\bim traum\b|\bwünsch(?:te|e mir)\b|\b(?:würde|wäre|hätte|könnte)(?:n|st)?\b"
    r"|^(?:angenommen|stell dir vor|vielleicht|falls)\b"
    r"|\b(?:ich (?:wohne|lebe|arbeite)|(?:wohne|lebe|arbeite) ich) nicht (?!mehr)"
    r"|^(?!ich\b|wir\b|[^,]{0,30}(?:arzt|ärztin)\b)[^,]{1,60}?\b(?:sagt|sagte|meint|meinte|behauptet|behauptete|rät|riet|findet)\b"
)
_SPANISH = (
    r"\bsoñ(?:é|aba|ado)\b|\bsueño (?:con|que)\b|\bojalá\b|\bsi (?:yo )?\w+(?:ara|iera|era|ase|iese)\b|\bme gustaría\b"
    r"|\bquisiera\b|^(?:imagina|supongamos|quizás?|tal vez|a lo mejor)\b"
    r"|(?<!ya )\bno (?:vivo|trabajo) (?:en|para)\b"
    r"|^(?!yo\b|[^,]{0,30}\b(?:médic|doctor|dentista))[^,]{1,60}?"
    r"\b(?:dice|dijo|cree|piensa|opina|aconseja|me recomendó) que\b"
)
_FRENCH = (
    r"\brêv(?:é|e|ais)\b|\bj'aimerais\b|\bje voudrais\b|\bsi (?:j'|je |on )\w+ais\b|\bsi seulement\b"
    r"|^(?:imagine|imaginons|supposons|peut-être)\b|\bj'ai failli\b"
    r"|\bje n(?:'habite|e vis|e travaille) pas\b"
    r"|^(?!je\b|j'|[^,]{0,30}\b(?:médecin|docteur|dentiste))[^,]{1,60}?"
    r"\b(?:dit|pense|croit|prétend|conseille) (?:que|qu'|de)"
)
_CHINESE = (
    r"梦见|梦到|做梦|要是|如果|假如|假设|希望我|但愿|想象|也许|说不定|差点|恨不得|巴不得|开玩笑"
    r"|^(?:我的?(?:姐|妹|哥|弟|妈|爸|母亲|父亲|父母|朋友|同事|老板|丈夫|妻子|老公|老婆|女儿|儿子|奶奶|爷爷|邻居|家人)[^，我]{0,3}"
    r"|(?!医生)[^我，]{1,8})(?:说|认为|觉得|建议)|我并?不(?:住在|在[^，。]{1,12}(?:工作|上班))(?![^，。]*了)"
)
_RUSSIAN = (
    r"\b(?:при)?снил(?:ось|ся|ась)\b|\bво сне\b|\bбы\b|\bмечта(?:ю|л|ла)\b|^(?:представь|допустим|возможно|может быть)"
    r"|\bчуть не\b|(?<!больше )\bне (?:живу|работаю) в"
    r"|^(?!я\b|мы\b|[^,]{0,30}\bврач)[^,]{1,60}?\b(?:говорит|сказал|сказала|считает|думает|советует)\b"
)
_UNREAL = re.compile("|".join((_ENGLISH, _GERMAN, _SPANISH, _FRENCH, _CHINESE, _RUSSIAN)), re.IGNORECASE)
_QUESTION = re.compile(r"[?？؟]+[\"'”’)\]»]*\s*$")
_QUOTED = re.compile(
    r"[\"“„«「][^\"”“»」]*\b(?:I|I'm|my|ich|mein\w*|yo|mi|je|mon|я|мой)\b[^\"”“»」]*[\"”“»」]|[“「][^”」]*我"
)


def is_question(text: str) -> bool:
    """Tell whether a sentence asks something."""
    return bool(_QUESTION.search(text))


@lru_cache(maxsize=2_000)  # the same sentence is asked about several times
def is_unreal(text: str) -> bool:
    """Tell whether a sentence says something that its speaker doesn't hold as true of the world."""
    said = text.replace("’", "'")
    return is_question(said) or bool(_UNREAL.search(said)) or bool(_QUOTED.search(said))
