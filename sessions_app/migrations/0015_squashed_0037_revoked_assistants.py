"""Applications, limited operators, limits a day, who speaks, test people, and assistants that ask for keys."""

from pathlib import Path

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models

from sessions_app.at_once import AtOnce

NAME = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
PEOPLE = """
ALTER TABLE sessions_app_userprofile ADD COLUMN application_id bigint DEFAULT 1 NOT NULL;
ALTER TABLE sessions_app_userprofile ADD CONSTRAINT user_profile_application
    FOREIGN KEY (application_id) REFERENCES sessions_app_application (id) DEFERRABLE INITIALLY DEFERRED NOT VALID;
"""
# Functions, policies and grants.
SQL = Path(__file__).with_suffix(".sql")


def subject(table: str, **fields: str) -> "models.ForeignKey[models.Model, models.Model]":
    return models.ForeignKey(
        blank=True,
        db_index=False,
        null=True,
        on_delete=django.db.models.deletion.CASCADE,
        to=f"sessions_app.{table}",
        **fields,
    )


COLUMNS = ("key", "user", "application")
SUBJECT = [
    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
    ("key", subject("apikey")),
    ("user", subject("userprofile", verbose_name="person")),
    ("application", subject("application")),
]
OF_ONE = models.Q(
    *(models.Q(*((f"{other}__isnull", other != column) for other in sorted(COLUMNS))) for column in COLUMNS),
    _connector="OR",
)

MODELS = [
    migrations.CreateModel(
        name="Application",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "name",
                models.CharField(
                    help_text="Small letters, digits and hyphens.",
                    max_length=64,
                    unique=True,
                    validators=[django.core.validators.RegexValidator(NAME, "Use small letters, digits and hyphens.")],
                ),
            ),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "ordering": ["name"],
            "constraints": [
                models.CheckConstraint(condition=models.Q(("name__regex", NAME)), name="application_name_is_slug")
            ],
        },
    ),
    migrations.RunSQL("INSERT INTO sessions_app_application (name, created_at) VALUES ('default', now())"),
    migrations.SeparateDatabaseAndState(
        [migrations.RunSQL(PEOPLE)],
        [
            migrations.AddField(
                "userprofile",
                "application",
                models.ForeignKey(
                    db_default=models.Value(1),
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="sessions_app.application",
                ),
            )
        ],
    ),
    migrations.RunSQL("ALTER TABLE sessions_app_userprofile VALIDATE CONSTRAINT user_profile_application"),
    migrations.AddField(
        "apikey",
        "application",
        models.ForeignKey(
            db_default=models.Value(1),
            on_delete=django.db.models.deletion.PROTECT,
            related_name="+",
            to="sessions_app.application",
        ),
    ),
    migrations.AddField(
        "event",
        "application",
        models.ForeignKey(
            blank=True,
            db_index=False,
            help_text="Of what names nobody, or nobody any more; blank: the person's, or the site's.",
            null=True,
            on_delete=django.db.models.deletion.PROTECT,
            related_name="+",
            to="sessions_app.application",
        ),
    ),
    migrations.AddConstraint(
        "userprofile",
        models.UniqueConstraint(fields=("application", "user_id"), name="user_profile_unique_in_application"),
    ),
    migrations.AddIndex(
        "userprofile", models.Index(fields=["user_id"], name="user_profile_begins", opclasses=["varchar_pattern_ops"])
    ),
    migrations.AlterField(
        "userprofile", "user_id", models.CharField(help_text="The application's own id of this person.", max_length=255)
    ),
    migrations.AlterModelOptions(
        name="session", options={"permissions": [("preview_context", "Can see the context of a session")]}
    ),
    migrations.AlterModelOptions(
        name="userprofile",
        options={
            "permissions": [
                ("read_userprofile", "Can read what is kept of a person all together"),
                ("export_userprofile", "Can export everything that is kept of a person"),
            ],
            "verbose_name": "user profile",
        },
    ),
    migrations.AddIndex(
        "event",
        models.Index(
            condition=models.Q(("type__in", ("user_read", "user_exported"))),
            fields=["user_pk", "-created_at", "-id"],
            name="event_reading",
        ),
    ),
    migrations.CreateModel(
        name="LoginLimit",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "application",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.application"
                ),
            ),
            (
                "login",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="limits", to=settings.AUTH_USER_MODEL
                ),
            ),
        ],
        options={
            "verbose_name": "limit to an application",
            "verbose_name_plural": "only these applications",
            "constraints": [models.UniqueConstraint(fields=("login", "application"), name="login_limit_once")],
        },
    ),
    migrations.CreateModel(
        name="DailyLimit",
        fields=[
            *SUBJECT,
            ("requests", models.PositiveBigIntegerField(blank=True, null=True)),
            ("stored_bytes", models.PositiveBigIntegerField(blank=True, null=True)),
            ("model_calls", models.PositiveBigIntegerField(blank=True, null=True)),
            (
                "usd",
                models.DecimalField(
                    blank=True,
                    decimal_places=6,
                    max_digits=12,
                    null=True,
                    validators=[django.core.validators.MinValueValidator(0)],
                    verbose_name="USD",
                ),
            ),
        ],
        options={
            "constraints": [
                models.CheckConstraint(condition=OF_ONE, name="daily_limit_of_one"),
                models.UniqueConstraint(fields=("key",), name="daily_limit_of_key"),
                models.UniqueConstraint(fields=("user",), name="daily_limit_of_person"),
                models.UniqueConstraint(fields=("application",), name="daily_limit_of_application"),
            ]
        },
    ),
    migrations.CreateModel(
        name="DailyUsage",
        fields=[
            *SUBJECT,
            ("day", models.DateField(help_text="In UTC.")),
            ("requests", models.BigIntegerField(default=0)),
            ("stored_bytes", models.BigIntegerField(default=0)),
            ("model_calls", models.BigIntegerField(default=0)),
            ("usd", models.DecimalField(decimal_places=6, default=0, max_digits=16)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("key__isnull", False)), fields=["key", "day"], name="daily_usage_of_key"
                ),
                models.Index(
                    condition=models.Q(("user__isnull", False)), fields=["user", "day"], name="daily_usage_of_person"
                ),
                models.Index(
                    condition=models.Q(("application__isnull", False)),
                    fields=["application", "day"],
                    name="daily_usage_of_application",
                ),
            ],
            "constraints": [models.CheckConstraint(condition=OF_ONE, name="daily_usage_of_one")],
        },
    ),
    migrations.AddField(
        "message",
        "name",
        models.CharField(
            blank=True,
            db_default="",
            default="",
            help_text="Who speaks, where several people or agents do.",
            max_length=255,
        ),
    ),
    migrations.AddIndex(
        "userprofile",
        django.contrib.postgres.indexes.GinIndex(
            django.contrib.postgres.search.SearchVector(
                django.db.models.functions.text.Concat(
                    models.Func(
                        models.F("user_id"),
                        models.Value("@._:/-|"),
                        models.Value("       "),
                        function="translate",
                        output_field=models.TextField(),
                    ),
                    models.Value(" "),
                    django.db.models.functions.text.Left("summary", 50000),
                    output_field=models.TextField(),
                ),
                config="simple",
            ),
            name="user_profile_words",
        ),
    ),
    migrations.AddField(
        "userprofile",
        "is_test",
        models.BooleanField(
            db_default=models.Value(False),
            default=False,
            editable=False,
            help_text="Nobody: operators chat as this person in the playground.",
            verbose_name="test person",
        ),
    ),
    migrations.AddIndex(
        "userprofile", models.Index(condition=models.Q(("is_test", True)), fields=["-id"], name="user_profile_test")
    ),
    migrations.AddIndex(
        "message",
        django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=["arrived_at"], name="message_arrived"),
    ),
    migrations.RemoveIndex(model_name="message", name="message_created"),
    migrations.CreateModel(
        name="OAuthClient",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("client_id", models.CharField(editable=False, max_length=64, unique=True)),
            ("name", models.CharField(max_length=255)),
            (
                "redirect_uris",
                django.contrib.postgres.fields.ArrayField(
                    base_field=models.CharField(max_length=2000), help_text="Where codes may be sent.", size=None
                ),
            ),
            ("registered_by", models.CharField(max_length=255)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True)),
        ],
        options={"verbose_name": "OAuth client"},
    ),
    migrations.CreateModel(
        name="OAuthGrant",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("granted_by", models.CharField(max_length=255)),
            ("redirect_uri", models.CharField(max_length=2000)),
            ("code_hash", models.CharField(max_length=64, unique=True)),
            ("code_challenge", models.CharField(max_length=128)),
            ("code_expires_at", models.DateTimeField()),
            ("code_used_at", models.DateTimeField(blank=True, null=True)),
            ("refresh_hash", models.CharField(blank=True, db_index=True, max_length=64)),
            ("former_refresh_hash", models.CharField(blank=True, db_index=True, max_length=64)),
            ("ends_at", models.DateTimeField(help_text="However often the key was renewed.")),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            (
                "client",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="grants", to="sessions_app.oauthclient"
                ),
            ),
            (
                "key",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="grant", to="sessions_app.apikey"
                ),
            ),
        ],
        options={"verbose_name": "OAuth grant"},
    ),
]


class Migration(migrations.Migration):
    replaces = [
        ("sessions_app", "0015_as_made_today"),
        ("sessions_app", "0016_applications"),
        ("sessions_app", "0017_names_in_applications"),
        ("sessions_app", "0018_names_no_longer_unique"),
        ("sessions_app", "0019_reading"),
        ("sessions_app", "0020_limited_operators"),
        ("sessions_app", "0021_daily_limits"),
        ("sessions_app", "0022_speakers"),
        ("sessions_app", "0023_database_roles"),
        ("sessions_app", "0025_words_without_places"),
        ("sessions_app", "0027_words_of_people"),
        ("sessions_app", "0030_test_people"),
        ("sessions_app", "0033_turns_by_arrival"),
        ("sessions_app", "0036_oauth"),
        ("sessions_app", "0037_revoked_assistants"),
    ]

    dependencies = [
        ("sessions_app", "0007_squashed_0014_archived_turns"),
        ("auth", "__first__"),
        ("admin", "__first__"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [AtOnce(MODELS), migrations.RunSQL(SQL.read_text())]
