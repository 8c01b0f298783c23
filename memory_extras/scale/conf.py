"""Settings of the extra, and its changes to Django's settings."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import environ
from pydantic import Field, SecretStr, model_validator

from memoryproject.conf import LOCAL_STORAGE, DatabaseUrl, Group, HttpUrl, RetentionSettings

MIDDLEWARE = "memory_extras.scale.replica.ReplicaMiddleware"


class BucketSettings(RetentionSettings):
    """Settings of retention, with a bucket for archives."""

    s3_bucket: str = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$",
        description="S3 bucket for archives. Install `memory-platform[s3]` first. If unset, archives are files.",
    )
    s3_endpoint_url: HttpUrl = Field("", description="URL of the S3-compatible store. If unset, Amazon S3 is used.")
    s3_region: str = Field("", description="Region of the bucket. If unset, the store's default region is used.")
    s3_access_key: str = Field(
        "",
        description="Access key of the store. If unset, the platform uses the AWS credentials in the environment, "
        "or those of the host's role.",
    )
    s3_secret_key: SecretStr = Field(SecretStr(""), description="Secret that belongs to the access key.")
    s3_prefix: str = Field("", pattern=r"^([^/].*)?$", description="Folder in the bucket that contains the archives.")

    @model_validator(mode="after")
    def _is_one_storage(self) -> "BucketSettings":
        if bool(self.s3_access_key) != bool(self.s3_secret_key.get_secret_value()):
            raise ValueError("set both RETENTION__S3_ACCESS_KEY and RETENTION__S3_SECRET_KEY, or neither")
        if self.s3_bucket and self.storage_backend != LOCAL_STORAGE:
            raise ValueError("set RETENTION__S3_BUCKET or RETENTION__STORAGE_BACKEND, not both")
        if not self.s3_bucket and (self.s3_endpoint_url or self.s3_region or self.s3_access_key or self.s3_prefix):
            raise ValueError("other S3 settings are set, but RETENTION__S3_BUCKET is missing")
        return self

    @property
    def is_elsewhere(self) -> bool:
        return bool(self.s3_bucket) or super().is_elsewhere

    @property
    def storage_setting(self) -> str:
        return "RETENTION__S3_BUCKET" if self.s3_bucket else super().storage_setting

    def storage(self, data_dir: Path) -> dict[str, Any]:
        if not self.s3_bucket:
            return super().storage(data_dir)
        options = {
            "bucket": self.s3_bucket,
            "endpoint_url": self.s3_endpoint_url,
            "region": self.s3_region,
            "access_key": self.s3_access_key,
            "secret_key": self.s3_secret_key.get_secret_value(),
            "prefix": self.s3_prefix,
        }
        return {"BACKEND": "memory_extras.scale.s3.S3Archives", "OPTIONS": options}


class Settings(Group):
    replica_database_url: DatabaseUrl = Field(
        "",
        description="URL of a hot standby of the database. The login in the URL must be a member of the role "
        "`memory_web`. The platform reads operators' lists, reports and exports from the standby. If unset, the "
        "platform reads all data from the primary.",
    )
    retention: BucketSettings = BucketSettings()


def extend(settings: dict[str, Any]) -> None:
    url = settings["CONF"].replica_database_url
    settings["HAS_REPLICA"] = bool(url)
    last = settings["MIDDLEWARE"].index("memoryproject.logins.LimitedOperatorMiddleware")
    settings["MIDDLEWARE"].insert(last, MIDDLEWARE)
    settings["MIDDLEWARE_OF_PAGES"].append(MIDDLEWARE)
    if url:
        replica = {"OPTIONS": {}} | environ.Env.db_url_config(url)
        replica["HOST"] = unquote(replica["HOST"])  # as for DATABASE_URL
        replica |= {"ENGINE": "memoryproject.database", "CONN_MAX_AGE": 60, "TEST": {"MIRROR": "default"}}
        # A page waits for the connection, so the timeout is short.
        replica["OPTIONS"] = settings["DATABASE_OPTIONS"] | {"connect_timeout": 2} | replica["OPTIONS"]
        settings["DATABASES"]["replica"] = replica
