"""`policy`: what memory is, and that it is data."""

from collections.abc import Sequence

from django.conf import settings

from moments_app.context.input import POLICY_URI, ContextInput
from moments_app.context.item import Item
from moments_app.models import PromptResource

STATIC = True


def items(source: ContextInput) -> Sequence[Item]:
    """Return the prompt resource of the application, or the site's, when one is in force; else the setting."""
    try:
        version = PromptResource.objects.version_in_force(POLICY_URI, source.user.application_id)
    except PromptResource.DoesNotExist:
        return [Item(settings.MEMORY_CONTEXT.policy)]
    return [Item(version.content.strip(), ref=POLICY_URI)]
