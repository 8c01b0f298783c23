"""The workflow that publishes a release runs make targets that exist, with no more rights than each job needs."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS = WORKFLOW["jobs"]


def test_only_publishing_jobs_can_publish_and_they_wait_for_the_checks() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    writes = {
        name: {right for right, may in job["permissions"].items() if may == "write"} for name, job in JOBS.items()
    }
    signs = {"id-token", "attestations"}
    publishes = {"pypi": {"id-token"}, "npm": {"id-token"}, "image": {"packages", *signs}, "notes": {"contents"}}
    assert writes == {"build": signs, **publishes}
    assert all(JOBS[name]["needs"] == "build" for name in ("pypi", "npm", "image"))
    assert set(JOBS["notes"]["needs"]) == {"pypi", "npm", "image"}


def test_the_workflow_needs_no_secret_and_pins_each_action() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    assert "secrets." not in text
    used = re.findall(r"uses: (\S+)", text)
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v1)", one) for one in used)


def test_the_workflow_publishes_what_the_make_target_builds() -> None:
    [command] = [step["run"] for step in JOBS["build"]["steps"] if "run" in step]
    target = re.fullmatch(r"make ([\w-]+)", command)
    assert target
    recipe = re.search(rf"^{target[1]}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert recipe
    attested = [step["with"] for step in JOBS["build"]["steps"] if "attest" in step.get("uses", "")]
    assert all(one["sbom-path"] in recipe[1] for one in attested if "sbom-path" in one)
    assert {one["subject-path"].rpartition("/")[0] for one in attested} == {"dist/release"}


def test_the_clients_have_one_version() -> None:
    python = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]
    typescript = json.loads((ROOT / "clients/typescript/package.json").read_text())
    assert (python["name"], python["version"]) == (typescript["name"], typescript["version"])
