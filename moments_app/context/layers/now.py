"""`now`: date, time and part of the day where the person is."""

from collections.abc import Sequence

from django.utils import timezone

from moments_app.context.input import ContextInput
from moments_app.context.item import Item

STATIC = False
PARTS = ((5, "night"), (12, "morning"), (17, "afternoon"), (22, "evening"), (24, "night"))  # each up to that hour


def items(source: ContextInput) -> Sequence[Item]:
    """Return one item, by the profile's time zone; by UTC where that is not a time zone."""
    zone = source.user.zone
    local = timezone.now().astimezone(zone)
    part = next(name for end, name in PARTS if local.hour < end)
    return [Item(f"{local:%A, %Y-%m-%d, %H:%M} ({zone.key}), {part}", is_certain=True)]
