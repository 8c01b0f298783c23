"""What the processes with an engine share: how a claim or a commit says that there is nothing to write."""

from dataclasses import dataclass

from moments_app.models import PromptResource, PromptVersion


@dataclass(frozen=True)
class Skipped:
    """What a claim returns that found nothing to do."""

    reason: str


class CannotRun(Exception):
    """The job can't be done as things are set up; another try would not help. The message says what to mend."""


class Moved(Exception):
    """What the claim read has changed since: the work is to be done again with what is there now."""


class ClaimLost(Exception):
    """Another worker has taken the job over, or what it was about is gone: this run writes nothing."""


def prompt_in_force(uri: str) -> PromptVersion:
    """The active version of a prompt resource.

    Raises:
        CannotRun: there is none; names the URI.
    """
    try:
        return PromptResource.objects.version_in_force(uri)
    except PromptResource.DoesNotExist as error:
        raise CannotRun(str(error)) from error
