"""The Helm chart: Helm lints and renders it, and Kubernetes' schemas accept the result.

`make helm` installs the two libraries that these tests need. `make test` skips most of them.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

from memoryproject import __version__, conf, embeddings

CHART = Path(settings.BASE_DIR, "deploy/helm")
OWN = {"image": {"repository": "registry.example/memory"}}
EVERYTHING: dict[str, Any] = OWN | {
    "secret": {"keys": ["ENGINE__API_KEY"]},
    "settings": {"ENGINE__MODEL": "a-model", "ALLOWED_HOSTS": "memory.example"},
    "commands": {"enabled": True},
    "ingress": {"enabled": True, "host": "memory.example", "tlsSecret": "certificate", "className": "nginx"},
    "data": {"storageClass": "fast"},
}
VARIANTS = {"default": OWN, "everything": EVERYTHING, "few": OWN | {"embeddings": {"enabled": False}}}
RELEASES = "1.27", "1.37"  # of Kubernetes: the oldest that the chart allows, and the newest with a schema


@cache
def helm() -> Any:
    return pytest.importorskip("helm_python", reason="run `make helm`")


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the resources of a release."""
    chart = helm().Chart.load(CHART)
    chart.validate_schema(values)
    texts = chart.render(values, name="mem", namespace="apps")
    resources = [one for name, text in texts.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text)]
    return [one for one in resources if one]


def pods(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the specifications of the pods by part."""
    found = [one["spec"]["template"] for one in rendered(values) if "template" in one["spec"]]
    return {one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"] for one in found}


def test_the_chart_has_the_version_of_the_platform() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__ == chart["version"].replace("-", "")


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_finds_no_error_or_warning(variant: str) -> None:
    found = helm().lint(CHART, VARIANTS[variant], strict=True)
    assert [one for one in found["messages"] if one["severity"] > 1] == found["errors"] == []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_schemas_of_kubernetes_accept_each_resource(variant: str, release: str) -> None:
    resources = rendered(VARIANTS[variant])
    kubernetes: Any = import_module("kubernetes_validate")
    assert [kubernetes.validate(one, release, strict=True) for one in resources] == [release] * len(resources)


@pytest.mark.parametrize("wrong", [{"imag": {}}, {"web": {"replica": 2}}, {"settings": {"https": "true"}}])
def test_unknown_values_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(helm().HelmValuesError):
        rendered(OWN | wrong)
    with pytest.raises(helm().HelmRenderError, match=r"Set image\.repository"):
        rendered({})


def test_each_pod_has_few_rights_and_limited_resources() -> None:
    for pod in pods(EVERYTHING).values():
        [container] = pod["containers"]
        assert pod["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10001}.items()
        assert pod["automountServiceAccountToken"] is False
        rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == rights
        assert container["resources"].keys() == {"requests", "limits"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_pod_starts_a_known_command_with_valid_settings(variant: str, tmp_path: Path) -> None:
    for part, pod in pods(VARIANTS[variant]).items():
        [container] = pod["containers"]
        program, command, *_ = container["args"]
        assert program in ("gunicorn", "sleep") or (program == "memory-platform" and command in get_commands())
        folder = tmp_path / part
        folder.mkdir()
        for item in pod["volumes"][0]["secret"]["items"]:
            (folder / item["path"]).write_text(item["key"].lower())
        told = {one["name"]: one["value"] for one in container["env"]}
        found = conf.load(told | {"SECRETS_DIR": str(folder)})
        if VARIANTS[variant].get("embeddings") is None:
            assert (found.embedding.model, found.embedding.dimensions) == (embeddings.PACKAGE, embeddings.DIMENSIONS)
        owner = "database_url" in (found.database_url, found.web_database_url, found.worker_database_url)
        assert owner is (part in ("migrate", "commands"))
        assert bool(found.database_url) is (part != "embeddings")


def test_services_and_volumes_refer_to_resources_of_the_release() -> None:
    resources = rendered(EVERYTHING)
    named = {(one["kind"], one["metadata"]["name"]) for one in resources}
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in resources if "template" in one["spec"]]
    for service in (one["spec"] for one in resources if one["kind"] == "Service"):
        assert sum(service["selector"].items() <= one.items() for one in labels) == 1
    url = next(one["value"] for one in pods(EVERYTHING)["web"]["containers"][0]["env"] if "BASE_URL" in one["name"])
    assert ("Service", url.split("//")[1].split(":")[0]) in named
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in pods(EVERYTHING)["web"]["volumes"][1:2]}
    assert {("PersistentVolumeClaim", claim) for claim in claims} <= named
