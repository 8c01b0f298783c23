"""Tasks, goals and problems, and what everybody sees in a shard, can be retracted; so a retraction may be nobody's."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from sessions_app.limited_operators import of_person, seen

RETRACTIONS, ITEMS = "moments_app_retraction", "moments_app_retracteditem"


def shown(table: str, of_nobody: str) -> migrations.RunSQL:
    """Return an operation after which limited operators see the rows of nobody, too, that are their applications'."""
    own = of_person(table)
    return migrations.RunSQL(
        sql=f"ALTER POLICY operators ON {table} USING (CASE WHEN user_id IS NULL THEN {of_nobody} ELSE {own} END)",
        reverse_sql=f"ALTER POLICY operators ON {table} USING ({own})",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0063_failures_found"),
        ("sessions_app", "0027_words_of_people"),
    ]

    operations = [
        migrations.AddField(
            model_name="entity",
            name="written_by",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Whose key added it, key:…; blank: it is not known.",
                max_length=255,
            ),
        ),
        migrations.AddField(
            model_name="retraction",
            name="entity_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(),
                blank=True,
                help_text="Of the tasks, goals and problems among them.",
                null=True,
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="retraction",
            name="stream",
            field=models.ForeignKey(
                blank=True,
                help_text="Whose items, where everybody sees them.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="retractions",
                to="moments_app.memorystream",
                verbose_name="shard",
            ),
        ),
        migrations.AlterField(
            model_name="retraction",
            name="user",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="retractions",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AlterField(
            model_name="retracteditem",
            name="user",
            field=models.ForeignKey(
                help_text="Of whom the retraction is; blank: of a shard.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddConstraint(
            model_name="retraction",
            constraint=models.CheckConstraint(
                condition=models.Q(("user__isnull", True), ("stream__isnull", True), _connector="XOR"),
                name="retraction_of_person_or_shard",
            ),
        ),
        shown(RETRACTIONS, seen(RETRACTIONS, "moments_app_memorystream", "stream_id")),
        shown(ITEMS, seen(ITEMS, RETRACTIONS, "retraction_id")),
    ]
