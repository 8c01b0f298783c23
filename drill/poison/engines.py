"""The engines that an attack meets, each in an installation of its own."""

import os
from collections.abc import Mapping, Sequence

from drill.database import beside
from drill.poison.attacks import Attack
from drill.poison.course import Say, Watch, planned, run
from drill.poison.obedient import OBEDIENT, reply
from drill.poison.report import Row
from drill.poison.site import Attacked
from drill.provider import Provider
from drill.site import Site

# What an engine answers to an attack may be refused, attempt by attempt; that is waited for.
AT_ONCE = {"JOBS__BACKOFF_SECONDS": "1"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "extractive": {"ENGINE__PROVIDER": "extractive"},
    "obedient model": {"ENGINE__PROVIDER": "openai"},
}


def drilled(engine: str, attacks: Sequence[Attack], doors: Sequence[str], say: Say) -> list[Row]:
    """Do the drill with an engine, in an installation of its own.

    Args:
        engine: one of `ENGINES`.
        attacks: that are planted.
        doors: by which each of them is.
        say: prints a line of progress.

    Raises:
        NotWell: the installation refuses what it should do.
    """
    say(f"Starting an installation with the engine: {engine} …")
    planted = planned(attacks, doors, engine)
    watch = Watch(planted)
    with (
        Provider(OBEDIENT, reply, latency=0) as provider,
        beside(os.environ.get("DATABASE_URL", "")) as database,
        Site(provider, database, variables={**ENGINES[engine], **AT_ONCE}) as site,
    ):
        provider.failure = watch
        return run(Attacked(site, watch), planted, watch, say)
