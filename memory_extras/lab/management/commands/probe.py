import json
import uuid
from typing import Any

from django.core.management.base import CommandError, CommandParser

from memory_extras.lab.models import Probe, ProbeQuerySet, ProbeResult
from memory_extras.lab.probes.run import run_probes
from sessions_app.management.base import RefusingCommand, add_application, application_of


class Command(RefusingCommand):
    help = (
        "Run probes and print the results as JSON, without their texts. Fails if there are no probes, or if too few "
        "are met. No model is called."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", metavar="USER_ID", help="only the probes of this person")
        parser.add_argument("--session", metavar="SESSION_ID", help="only the probes asked in this session")
        add_application(parser)
        parser.add_argument(
            "--threshold",
            type=float,
            default=1.0,
            metavar="SHARE",
            help="share of probes that must be met, from 0 to 1; 1: all probes",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        if not 0 <= options["threshold"] <= 1:
            raise CommandError("--threshold must be between 0 and 1.")
        run_id = uuid.uuid4()
        results = list(run_probes(_probes(options), run_id, requested_by="command"))
        if not results:
            raise CommandError("There are no probes for these options.")
        met = sum(result.is_met for result in results)
        found = {"run_id": str(run_id), "probes": len(results), "met": met, "share": round(met / len(results), 4)}
        text = json.dumps(found | {"results": [_told(result) for result in results]}, indent=2)
        if met < options["threshold"] * len(results):
            self.stdout.write(text)
            raise CommandError(
                f"{met} of {len(results)} probes are met, less than the threshold of {options['threshold']:.0%}."
            )
        return text


def _probes(options: dict[str, Any]) -> ProbeQuerySet:
    probes = Probe.objects.of_application(application_of(options))
    for option, lookup in (("user", "user__user_id"), ("session", "session__session_id")):
        if options[option] is not None:
            probes = probes.filter(**{lookup: options[option]})
    return probes


def _told(result: ProbeResult) -> dict[str, Any]:
    names = ("is_met", "words_found", "words_count", "evidence_found", "evidence_count", "tokens", "problem")
    return {"probe_id": str(result.probe.probe_id)} | {name: getattr(result, name) for name in names}
