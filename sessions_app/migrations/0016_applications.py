"""Applications; all there is belongs to the first, `default`.

No table is rewritten, and none is read while it is locked: columns get a constant, and references are checked later.
"""

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

NAME = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
FIRST = "INSERT INTO sessions_app_application (name, created_at) VALUES ('default', now())"
PEOPLE = """
ALTER TABLE sessions_app_userprofile ADD COLUMN application_id bigint DEFAULT 1 NOT NULL;
ALTER TABLE sessions_app_userprofile ADD CONSTRAINT user_profile_application
    FOREIGN KEY (application_id) REFERENCES sessions_app_application (id) DEFERRABLE INITIALLY DEFERRED NOT VALID;
"""


def application(**fields: object) -> "models.ForeignKey[models.Model, models.Model]":
    """Return the reference to an application."""
    return models.ForeignKey(
        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.application", **fields
    )


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0015_as_made_today")]

    operations = [
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
                        validators=[
                            django.core.validators.RegexValidator(NAME, "Use small letters, digits and hyphens.")
                        ],
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(name__regex=NAME), name="application_name_is_slug")
                ],
            },
        ),
        migrations.RunSQL(FIRST, migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(PEOPLE, "ALTER TABLE sessions_app_userprofile DROP COLUMN application_id"),
            ],
            state_operations=[
                migrations.AddField(
                    "userprofile", "application", application(db_default=models.Value(1), db_index=False)
                ),
            ],
        ),
        migrations.AddField("apikey", "application", application(db_default=models.Value(1))),
        migrations.AddField(
            "event",
            "application",
            application(
                blank=True,
                db_index=False,
                help_text="Of what names nobody, or nobody any more; blank: the person's, or the site's.",
                null=True,
            ),
        ),
    ]
