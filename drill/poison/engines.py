"""The engines to attack, each in its own installation."""

import os
from collections.abc import Mapping, Sequence

from drill.database import temporary_database
from drill.poison.attacks import Attack
from drill.poison.course import Say, Watch, planned, run
from drill.poison.obedient import OBEDIENT, reply
from drill.poison.report import Row
from drill.poison.site import AttackedSite
from drill.provider import Provider
from drill.site import Site

# The results of an engine under attack may be rejected in every attempt, so the backoff is short.
RETRY_SOON = {"JOBS__BACKOFF_SECONDS": "1"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "extractive": {"ENGINE__PROVIDER": "extractive"},
    "obedient model": {"ENGINE__PROVIDER": "openai"},
}


def drilled(engine: str, attacks: Sequence[Attack], doors: Sequence[str], say: Say) -> list[Row]:
    """Run the drill with an engine, in its own installation.

    Args:
        engine: One of `ENGINES`.
        attacks: The attacks.
        doors: The entry points.
        say: Prints a progress message.

    Raises:
        SiteNotReady: The installation rejects a valid request.
    """
    say(f"Starting an installation with the engine: {engine} …")
    planted = planned(attacks, doors, engine)
    watch = Watch(planted)
    with (
        Provider(OBEDIENT, reply, latency=0) as provider,
        temporary_database(os.environ.get("DATABASE_URL", "")) as database,
        Site(provider, database, variables={**ENGINES[engine], **RETRY_SOON}) as site,
    ):
        provider.failure = watch
        return run(AttackedSite(site, watch), planted, watch, say)
