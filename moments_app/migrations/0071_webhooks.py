"""Webhooks: who is told what happens, and what each was told."""

import uuid

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.limited_operators import APPLICATIONS, let_operators, seen

ENDPOINTS, DELIVERIES = "moments_app_webhookendpoint", "moments_app_webhookdelivery"


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0070_prompt_trials"),
        ("sessions_app", "0027_words_of_people"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                (
                    "url",
                    models.CharField(
                        help_text="Each event is posted there.",
                        max_length=2000,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^https?://[^\\s/]+", "It begins with https:// and has no spaces."
                            )
                        ],
                        verbose_name="address",
                    ),
                ),
                (
                    "events",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("moments_built", "moment.made"),
                                ("session_settled", "session.settled"),
                                ("job_failed", "job.failed"),
                                ("circuit_opened", "provider.down"),
                                ("user_erased", "person.erased"),
                            ],
                            max_length=32,
                        ),
                        size=None,
                    ),
                ),
                ("sealed_secret", models.BinaryField()),
                (
                    "is_active",
                    models.BooleanField(default=True, help_text="It is told of what happens.", verbose_name="active"),
                ),
                ("failures", models.PositiveIntegerField(default=0, editable=False, help_text="In a row.")),
                (
                    "waits_until",
                    models.DateTimeField(editable=False, help_text="Nothing is sent before.", null=True),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "application",
                    models.ForeignKey(
                        default=1,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
            ],
            options={"verbose_name": "webhook"},
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("delivery_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("queued_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "due_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, help_text="Blank: it was sent, or given up.", null=True
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("sent_at", models.DateTimeField(null=True)),
                ("error", models.CharField(blank=True, help_text="Of the last attempt.", max_length=255)),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.event"
                    ),
                ),
                (
                    "endpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="moments_app.webhookendpoint",
                        verbose_name="to",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)), fields=["due_at", "id"], name="webhook_due"
                    )
                ],
            },
        ),
        let_operators(ENDPOINTS, f"application_id = ANY({APPLICATIONS})"),
        let_operators(DELIVERIES, seen(DELIVERIES, ENDPOINTS, "endpoint_id")),
    ]
