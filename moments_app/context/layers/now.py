"""`now`: date, time and part of the day in the person's time zone."""

from collections.abc import Sequence

from django.utils import timezone

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer

PARTS = ((5, "night"), (12, "morning"), (17, "afternoon"), (22, "evening"), (24, "night"))  # each ends at that hour


def items(source: ContextInput) -> Sequence[Item]:
    """Return one item with the time in the profile's time zone, or in UTC if that is not a valid time zone."""
    zone = source.user.zone
    local = timezone.now().astimezone(zone)
    part = next(name for end, name in PARTS if local.hour < end)
    return [Item(f"{local:%A, %Y-%m-%d, %H:%M} ({zone.key}), {part}", is_certain=True)]


# It changes with the clock, so it is only included on request.
add_layer(Layer("now", items, place=90, tag="Now", title="Now", is_default=False))
