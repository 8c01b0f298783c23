"""The day that a sentence names for what it says."""

import re
from datetime import UTC, datetime

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = "|".join(_MONTHS)
_DATES = re.compile(
    rf"\b(?P<iso>\d{{4}}-\d\d(?:-\d\d)?)\b"
    rf"|\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<month>{_MONTH})(?:,? (?P<year>\d{{4}}))?\b"
    rf"|\b(?P<month2>{_MONTH}) (?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year2>\d{{4}}))?\b(?!\d)"
    rf"|\b(?:in|since|from) (?P<month3>{_MONTH})(?: (?P<year3>\d{{4}}))?\b"
    rf"|\b(?:in|since|from) (?P<year4>(?:19|20)\d\d)\b",
    re.IGNORECASE,
)


def since_in(text: str, said_at: datetime) -> datetime | None:
    """Return the day that a sentence names; None where it names none, or one that can't be.

    Args:
        text: in English.
        said_at: when it was said: a day without a year is the last one before that, and none is later.
    """
    found = _DATES.search(text)
    try:
        day = _day(found, said_at) if found else None
    except ValueError:  # no such day
        return None
    return min(day, said_at) if day else None


def _day(found: re.Match[str], said_at: datetime) -> datetime:
    if iso := found["iso"]:
        return datetime.fromisoformat(f"{iso}-01"[:10]).replace(tzinfo=UTC)
    if found["year4"]:
        return datetime(int(found["year4"]), 1, 1, tzinfo=UTC)
    month = _MONTHS.index((found["month"] or found["month2"] or found["month3"]).lower()) + 1
    day, year = int(found["day"] or found["day2"] or 1), found["year"] or found["year2"] or found["year3"]
    if year:
        return datetime(int(year), month, day, tzinfo=UTC)
    this_year = datetime(said_at.year, month, day, tzinfo=UTC)
    return this_year if this_year <= said_at else this_year.replace(year=said_at.year - 1)
