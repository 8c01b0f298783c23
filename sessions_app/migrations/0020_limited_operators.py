"""Logins that are limited to applications, and what they see of the transcript and of the site's tables."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from sessions_app.limited_operators import (
    APPLICATIONS,
    CREATE_OPERATOR_ROLE,
    OPERATOR,
    let_operators,
    of_person,
)

EVENTS = "sessions_app_event"
TRANSCRIPT = ("session", "message", "profileversion", "archive")


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0019_reading"),
        ("auth", "__first__"),
        ("admin", "__first__"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
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
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="limits",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "limit to an application",
                "verbose_name_plural": "only these applications",
                "constraints": [models.UniqueConstraint(fields=("login", "application"), name="login_limit_once")],
            },
        ),
        CREATE_OPERATOR_ROLE,
        let_operators("sessions_app_userprofile", f"application_id = ANY({APPLICATIONS})"),
        *(let_operators(f"sessions_app_{table}", of_person(f"sessions_app_{table}")) for table in TRANSCRIPT),
        let_operators(
            EVENTS,
            f"CASE WHEN user_pk IS NULL THEN application_id = ANY({APPLICATIONS}) "
            f"ELSE {of_person(EVENTS, 'user_pk')} END",
        ),
        let_operators("sessions_app_apikey", f"application_id = ANY({APPLICATIONS})"),
        let_operators("sessions_app_application", "false", read=f"id = ANY({APPLICATIONS})"),
        let_operators("sessions_app_loginlimit", "false", read=f"login_id = {OPERATOR}"),
        let_operators("auth_user", f"id = {OPERATOR}"),
        let_operators("django_admin_log", f"user_id = {OPERATOR}"),
    ]
