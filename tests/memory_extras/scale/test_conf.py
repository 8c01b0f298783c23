"""Settings of the extra `scale`."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from memoryproject import conf

SCALE = {"EXTRAS": "scale"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETENTION__S3_BUCKET", "Not a name"),
        ("RETENTION__S3_ENDPOINT_URL", "store.example"),
        ("RETENTION__TRANSCRIPT_DAYS", "0"),
        ("REPLICA_DATABASE_URL", "mysql://x"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=name):
        conf.load(SCALE | {name: value})


@pytest.mark.parametrize("name", ["RETENTION__S3_BUCKET", "REPLICA_DATABASE_URL"])
def test_a_setting_without_the_extra_is_rejected_with_its_name(name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"{name}: its extra isn't installed; add scale to EXTRAS"):
        conf.load({"EXTRAS": "", name: "archives"})


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"S3_REGION": "eu-central-1"}, "RETENTION__S3_BUCKET is missing"),
        ({"S3_BUCKET": "archives", "S3_ACCESS_KEY": "AK"}, "or neither"),
        ({"S3_BUCKET": "archives", "STORAGE_BACKEND": "x.Y"}, "not both"),
    ],
)
def test_the_settings_of_a_bucket_must_be_complete_and_exclusive(environment: dict[str, str], told: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=told):
        conf.load(SCALE | {f"RETENTION__{name}": value for name, value in environment.items()})


def test_row_20_a_wrong_secret_is_not_printed() -> None:
    bucket = {
        **SCALE,
        "RETENTION__S3_BUCKET": "archives",
        "RETENTION__S3_ACCESS_KEY": "AK",
        "RETENTION__S3_SECRET_KEY": "sk-marked",
    }
    assert "sk-marked" not in repr(conf.load(bucket))
