"""Patterns for people's own name, home and work in languages other than English, and for the end of these.

What they are is read as their work if `occupations.txt` has a word that begins so.

The patterns are few and short. A sentence that none of them fits has no attribute; it is kept as it was said.
"""

import re
from pathlib import Path

HOME, WORK, NAME, AGE, RELATIONSHIP = "home", "work", "name", "age", "relationship"

Read = tuple[str, str, bool, bool]  # attribute, value, whether it is over, whether it says that something changed

# "Nora: I live in Oslo", as transcripts and quotes have it.
SPEAKER = re.compile(r"^([^\W\d_][\w'’.-]{0,30}(?: [^\W\d_][\w'’.-]{1,30})?): (?=\S)")

_PROPER = r"[A-ZÀ-ÞĀ-ŽА-ЯЁ][\w'’-]*"
_NAMED = rf"(?P<value>{_PROPER}(?: {_PROPER}){{0,2}})"
_PLACE = rf"(?P<value>{_PROPER}(?:[ -](?:(?:de|del|la|el|sur|am|an der) )?{_PROPER}){{0,2}})"
_FIRM = rf"(?P<firm>{_PROPER}(?: {_PROPER}){{0,2}})"
_ROLE = r"(?P<role>[^\W\d_][\w-]+)"
_FEW = r"(?: [\w,'’-]+){0,5}?"  # words between a verb and what goes with it
_HAN = r"\u4e00-\u9fff"
_ONE = "(?:一名|一个|一位|名)?"
_HAN_PLACE = rf"(?P<value>(?:(?![的了和跟，])[{_HAN}]){{2,8}}?)(?=[了，,。.！!；;、\s]|$|和|跟|的|已)"


def _occupations() -> dict[str, str]:
    """Return an expression for the words for what people work as, by language."""
    lines = (Path(__file__).parent / "occupations.txt").read_text(encoding="utf-8").splitlines()
    listed = (line.split(": ") for line in lines if not line.startswith("#"))
    return {language: "|".join(words.split()) for language, words in listed}


OCCUPATIONS = _occupations()


def _occupation(language: str, before: str = "") -> str:
    """Return an expression for an occupation, with any ending, as the role."""
    return rf"{before}(?P<role>(?i:{OCCUPATIONS[language]})[\w-]*)"


_PATTERNS: list[tuple[str, str]] = [
    # German
    (NAME, rf"\b[Ii]ch hei(?:ß|ss)e {_NAMED}"),
    (NAME, rf"\b[Mm]ein (?:Vorn|voller N|N)ame ist {_NAMED}"),
    (NAME, rf"\b[Ii]ch bin (?:der|die) {_NAMED}(?=[,.!]|$)"),
    (NAME, rf"\b(?:[Mm]an nennt|[Aa]lle nennen|[Nn]enn(?:t|en Sie)?) mich {_NAMED}"),
    ("-" + HOME, rf"\b(?:[Ii]ch (?:wohne|lebe)|(?:wohne|lebe) ich)(?: jetzt)? nicht mehr in {_PLACE}"),
    (
        HOME,
        r"\b(?:[Ii]ch (?:wohne|lebe)|(?:wohne|lebe) ich|und (?:wohne|lebe)|[Ww]ir (?:wohnen|leben)|wohnen wir)"
        rf"(?! nicht){_FEW} in {_PLACE}",
    ),
    ("+" + HOME, rf"\bbin(?: ich)?{_FEW} nach {_PLACE}(?:{_FEW} (?:um)?gezogen\b| (?:um)?gezogen\b)"),
    (WORK, _occupation("de", r"\b(?:[Ii]ch bin|bin ich|und bin)(?: von Beruf| jetzt)?(?: eine?)? ")),
    ("-" + WORK, rf"\barbeite(?: ich)? nicht mehr (?:als {_ROLE}|(?:bei|für) {_FIRM})"),
    (WORK, rf"\b(?:[Ii]ch arbeite|arbeite ich|und arbeite)(?! nicht){_FEW} als {_ROLE}(?: bei {_FIRM})?"),
    (WORK, rf"\b(?:[Ii]ch arbeite|arbeite ich|und arbeite)(?! nicht){_FEW} (?:bei|für) {_FIRM}"),
    # Spanish
    (NAME, rf"\b[Mm]e llam(?:o|an) {_NAMED}"),
    (NAME, rf"\b[Mm]i nombre(?: completo)? es {_NAMED}"),
    (NAME, rf"(?:^|, )[Ss]oy {_NAMED}(?=[,.!]|$)"),
    ("-" + HOME, rf"\b[Yy]a no vivo en {_PLACE}"),
    (HOME, rf"(?<![Nn]o )\b[Vv]iv(?:o|imos)\b{_FEW} en {_PLACE}"),
    (WORK, _occupation("es", r"(?<![Nn]o )\b[Ss]oy (?:una? )?")),
    ("+" + HOME, rf"\b[Mm]e (?:mudé|he mudado|trasladé|he trasladado) a {_PLACE}"),
    ("-" + WORK, rf"\b[Yy]a no trabajo (?:(?:como|de) {_ROLE}|(?:en|para) {_FIRM})"),
    (WORK, rf"(?<![Nn]o )\b[Tt]rabajo (?:como|de) {_ROLE}(?: en {_FIRM})?"),
    (WORK, rf"(?<![Nn]o )\b[Tt]rabajo{_FEW} (?:en|para) {_FIRM}"),
    # French
    (NAME, rf"\b(?:[Jj]e m|[Oo]n m)['’]appelle {_NAMED}"),
    (NAME, rf"\b[Mm]on (?:pré)?nom(?: complet)? est {_NAMED}"),
    (NAME, rf"(?:^|, )(?:[Mm]oi,? c['’]est|[Jj]e suis) {_NAMED}(?=[,.!]|$)"),
    (
        "-" + HOME,
        rf"\b[Jj]e n['’](?:habite|ai) plus (?:à|en|au) {_PLACE}|\b[Jj]e ne vis plus (?:à|en|au) (?P<v>{_PROPER})",
    ),
    (
        HOME,
        rf"\b(?:[Jj]['’]habite|[Jj]e vis|[Nn]ous (?:habitons|vivons)|[Oo]n habite)\b(?! (?:pas|plus)){_FEW}"
        rf" (?:à|en|au) {_PLACE}",
    ),
    (WORK, _occupation("fr", r"\b[Jj]e suis (?:une? )?")),
    ("+" + HOME, rf"\b[Jj](?:['’]ai déménagé|e me suis installée?) (?:à|en|au) {_PLACE}"),
    ("-" + WORK, rf"\b[Jj]e ne travaille plus (?:comme {_ROLE}|(?:chez|pour) {_FIRM})"),
    (WORK, rf"\b[Jj]e travaille{_FEW} comme {_ROLE}(?: chez {_FIRM})?"),
    (WORK, rf"\b[Jj]e travaille{_FEW} (?:chez|pour) {_FIRM}"),
    # Chinese
    (WORK, rf"(?:我|，|^)是{_ONE}(?P<role>[{_HAN}]{{0,4}}(?:{OCCUPATIONS['zh']}))(?=[，,。.！!；;\s]|$)"),
    (
        NAME,
        rf"我(?:的名字)?(?:名叫|名字叫|叫做?|的?名字是|是)(?P<value>[{_HAN}]{{2,4}}|{_PROPER})(?=[，,。.！!；;、\s]|$)",
    ),
    (NAME, rf"我姓[{_HAN}]{{1,2}}，名?叫(?P<value>[{_HAN}]{{2,4}})(?=[，,。.！!；;、\s]|$)"),
    (NAME, rf"叫我(?P<value>[{_HAN}]{{1,3}}|{_PROPER})(?=[，,。.！!；;、\s]|$|就)"),
    ("-" + HOME, rf"我(?:已经|现在)?不(?:再)?住在?{_HAN_PLACE}"),
    (HOME, rf"我(?:们)?(?:和[{_HAN}]{{1,5}})?(?:现在|目前|一直)?(?:家)?(?:住在|居住在|住){_HAN_PLACE}"),
    (HOME, rf"我(?:们)?(?:现在|目前|一直)?在(?P<value>[{_HAN}]{{2,8}}?)生活"),
    ("+" + HOME, rf"我(?:们)?[^，。！？]{{0,8}}?搬(?:到|去)了?{_HAN_PLACE}"),
    ("-" + WORK, rf"我(?:已经)?不(?:再)?在(?P<firm>[{_HAN}A-Za-z]{{2,12}}?)(?:工作|上班)"),
    (
        WORK,
        rf"我(?:现在)?在(?P<firm>[{_HAN}A-Za-z]{{2,12}}?)(?:当|做|担任)(?P<role>[{_HAN}]{{2,8}}?)(?=[，,。.！!；;\s]|$)",
    ),
    (WORK, rf"我(?:现在)?在(?P<firm>[{_HAN}A-Za-z]{{2,12}}?)(?:工作|上班)"),
    (WORK, rf"我是(?:一名|一个|一位|名)(?P<role>[{_HAN}]{{2,8}}?)(?=[，,。.！!；;\s]|$)"),
    # Russian
    (NAME, rf"\b[Мм]еня зовут {_NAMED}"),
    (NAME, rf"\b[Мм]о[её] (?:полное )?имя {_NAMED}"),
    (NAME, rf"\b(?:[Зз]вать|[Зз]ови(?:те)?|[Нн]азывай(?:те)?) меня {_NAMED}"),
    (NAME, rf"^Я {_NAMED}(?=[,.!]|$)"),
    ("-" + HOME, rf"\bбольше не живу в[о]? {_PLACE}"),
    (HOME, rf"(?<![Нн]е )\b[Жж]ив(?:у|[её]м)\b{_FEW} в[о]? {_PLACE}"),
    (WORK, _occupation("ru", r"\bЯ ")),
    ("+" + HOME, rf"\b(?:пере(?:ехал|селил)(?:а|ся|ась)?) {_FEW}в[о]? {_PLACE}"),
    ("-" + WORK, rf"\bбольше не работаю (?:в[о]? {_FIRM}|{_ROLE})"),
    (WORK, rf"(?<![Нн]е )\b[Рр]аботаю\b{_FEW} в[о]? {_FIRM}"),
    (WORK, rf"(?<![Нн]е )\b[Рр]аботаю {_ROLE}"),
]
_COMPILED = [(attribute, re.compile(pattern)) for attribute, pattern in _PATTERNS]


def read_attribute(text: str) -> Read | None:
    """Return the first attribute that a sentence gives its speaker; None where no pattern fits."""
    for attribute, pattern in _COMPILED:
        if (found := pattern.search(text)) and (value := _value(found)):
            return attribute.lstrip("+-"), value, attribute[0] == "-", attribute[0] == "+"
    return None


def _value(found: re.Match[str]) -> str:
    named = found.groupdict()
    firm, role = named.get("firm") or "", named.get("role") or ""
    value = named.get("value") or named.get("v") or " ".join(filter(None, (role, firm and f"at {firm}")))
    return value.rstrip("'’-")
