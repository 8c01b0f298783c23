"""Whether a row tells of a call, or of a part of a combined one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0065_retract_what_is_written")]

    operations = [
        migrations.AddField(
            "enginecall",
            "is_part",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="What came of one task of a combined call, for its prompt. Tokens, cost and time are the "
                "call's.",
                verbose_name="part of a combined call",
            ),
        ),
    ]
