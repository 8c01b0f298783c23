"""Candidates that several people said alike, and what a rule releases of them: columns, which rewrite no table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0046_job_key")]

    operations = [
        migrations.AddField(
            "memoryatom",
            "alike",
            models.BigIntegerField(
                blank=True,
                editable=False,
                help_text="Of a candidate: primary key of the first of those that say alike.",
                null=True,
            ),
        ),
        migrations.AddField(
            "memoryatom",
            "left_to_operator",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Why the rule did not release the candidate.",
                max_length=255,
            ),
        ),
        migrations.AddField(
            "memorystream",
            "shares_by_rule",
            models.BooleanField(
                "shared by rule",
                db_default=False,
                default=False,
                help_text="Of a shard: what several people said alike reaches the users of their agent without an "
                "operator, where nothing in it is one person's. Of a shard of every agent it holds for all of its "
                "name.",
            ),
        ),
        migrations.AddField(
            "release",
            "quorum",
            models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                help_text="It is withdrawn when fewer people than this remain that it is from. 0: nobody counted.",
            ),
        ),
        migrations.AlterField(
            "release",
            "actor",
            models.CharField(help_text="Who decided: operator:…, or the rule with its version.", max_length=255),
        ),
        migrations.AlterField(
            "release",
            "rule",
            models.CharField(
                choices=[("operator", "Operator"), ("alike", "said alike")], default="operator", max_length=16
            ),
        ),
        migrations.AlterField(
            "release",
            "signature",
            models.CharField(
                editable=False,
                help_text="Of wording, stream and time; of a rule's, of the rule as well.",
                max_length=255,
            ),
        ),
    ]
