"""Assistants that ask operators for keys, and what they were granted."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, seen

CLIENTS, GRANTS = "sessions_app_oauthclient", "sessions_app_oauthgrant"


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0033_turns_by_arrival")]

    operations = [
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
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="sessions_app.oauthclient",
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
        let_operators(CLIENTS, "false", read="true"),
        let_operators(GRANTS, seen(GRANTS, "sessions_app_apikey", "key_id")),
    ]
