"""The dashboard for Grafana and the alerts for Prometheus use metrics and labels that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.core.cache import cache
from django.test import Client

from memoryproject.schedules import register_schedules
from memoryproject.serving.observation import SECONDS
from moments_app.interfaces.chat.errors import FAILURES
from moments_app.models import EmbeddingModel, Job
from sessions_app.models.daily_limit import usage_writer
from tests.support.api import Api
from tests.support.furnished import furnish
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.django_db(transaction=True)

DEPLOY = Path(settings.BASE_DIR, "deploy")
PANELS = json.loads((DEPLOY / "grafana/dashboard.json").read_text())["panels"]
RULES = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"][0]["rules"]
SHOWN = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
ALERTS = [rule["expr"] for rule in RULES]
OF_PROMETHEUS = {"job", "le"}
SUFFIX = r"_(bucket|sum|count|total|created)$"


def served(service: Api) -> dict[str, set[str]]:
    """Return the labels of each metric of a site that has rows of every kind, and has had requests."""
    furnish()
    EmbeddingModel.objects.in_use()
    register_schedules()
    Job.objects.request_task("embed", "memoryproject.schedules.run_schedule", "embed", requested_by="test")
    FAILURES.labels("spool").inc(0)
    SECONDS.labels("rest", "200").observe(0)
    service.post("sessions/s1/messages", user_id="ada", messages=[{"role": "user", "content": "Four"}])
    usage_writer.flush()
    cache.clear()
    found: dict[str, set[str]] = {}
    for line in Client().get("/metrics", headers=service.headers).content.decode().splitlines():
        if kept := re.match(r"# TYPE (\w+)|(\w+)(?:{(.*)})? ", line):
            found.setdefault(kept[1] or kept[2], set()).update(re.findall(r'(\w+)="', kept[3] or ""))
    return {name: labels for name, labels in found.items() if name.startswith("memory_")}


@pytest.mark.slow
def test_the_dashboard_and_the_alerts_use_all_metrics_with_their_labels(
    service: Api, embeddings_server: OpenAIServer
) -> None:
    found = served(service)
    for expression in (*SHOWN, *ALERTS):
        names = set(re.findall(r"\bmemory_\w+", expression))
        assert names and names <= found.keys(), expression
        grouped = re.findall(r"\bby \(([\w, ]+)\)", expression)
        labels = {one for by in grouped for one in by.split(", ")} | set(re.findall(r'(\w+)[!=]?[=~]+"', expression))
        assert labels - OF_PROMETHEUS <= set().union(*(found[name] for name in names)), expression
    shown = {re.sub(SUFFIX, "", name) for name in re.findall(r"\bmemory_\w+", " ".join(SHOWN))}
    assert shown == {re.sub(SUFFIX, "", name) for name in found}


def test_each_panel_has_its_own_id_and_overlaps_no_other() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in PANELS):
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and max(columns) < 24
        taken |= cells
