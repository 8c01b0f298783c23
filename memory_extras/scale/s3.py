"""Archives in a bucket of an S3-compatible object store. Requires the extra `s3`.

Extends the storage of django-storages for archives: a part of a file can be read without the rest, and deleting a file
also deletes its versions in the bucket.
"""

from typing import Any

from memoryproject.extras import packages_of

with packages_of("s3"):
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.exceptions import ClientError
    from storages.backends.s3 import S3File, S3Storage
    from storages.utils import clean_name

CLIENT: dict[str, Any] = {
    "connect_timeout": 5,  # timeouts in seconds
    "read_timeout": 30,
    "retries": {"mode": "standard", "total_max_attempts": 3},
    # Archives have their own checksums, and not every store supports the checksums that newer clients send.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}


class PartialFile(S3File):  # type: ignore[misc]
    """An object to read. It is fetched completely, or from the offset that `seek` sets before the first read."""

    _file: Any

    def seek(self, offset: int, whence: int = 0) -> Any:
        if self._file is None and offset and not whence:
            self._file = self.obj.get(Range=f"bytes={offset}-")["Body"]
            return offset
        return self.file.seek(offset, whence)


class S3Archives(S3Storage):  # type: ignore[misc]
    """A Django storage of archives. If the credentials are blank, boto3 uses those of the environment or the host."""

    def __init__(
        self, *, bucket: str, endpoint_url: str, region: str, access_key: str, secret_key: str, prefix: str
    ) -> None:
        addressing = "path" if endpoint_url else "auto"  # few other stores support bucket names in host names
        super().__init__(
            bucket_name=bucket,
            endpoint_url=endpoint_url or None,
            region_name=region or None,
            access_key=access_key or None,
            secret_key=secret_key or None,
            location=prefix,
            file_overwrite=False,
            # Otherwise, `Content-Encoding: gzip` is added, and some stores and proxies unpack such files in responses.
            object_parameters={"ContentType": "application/gzip"},
            client_config=Config(s3={"addressing_style": addressing}, **CLIENT),
            transfer_config=TransferConfig(use_threads=False),
        )

    def _open(self, name: str, mode: str = "rb") -> PartialFile:
        try:
            return PartialFile(self._normalize_name(clean_name(name)), mode, self)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                raise FileNotFoundError(name) from error
            raise

    def delete(self, name: str) -> None:
        """Delete an object with all its versions. A missing one is not an error."""
        place = {"Bucket": self.bucket_name, "Key": self._normalize_name(clean_name(name))}
        client = self.connection.meta.client
        if client.delete_object(**place).get("DeleteMarker"):  # the bucket has versioning
            kept = client.list_object_versions(Bucket=place["Bucket"], Prefix=place["Key"])
            for version in kept.get("Versions", []) + kept.get("DeleteMarkers", []):
                if version["Key"] == place["Key"]:
                    client.delete_object(**place, VersionId=version["VersionId"])
