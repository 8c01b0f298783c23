"""Served contexts are kept whole, with their receipts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0060_words_without_places")]

    operations = [
        migrations.AddField(
            model_name="contextreceipt",
            name="after_sequence",
            field=models.BigIntegerField(
                blank=True, null=True, help_text="The session's newest turn when it was served; −1 for none."
            ),
        ),
        migrations.AddField(
            model_name="contextreceipt",
            name="sealed",
            field=models.BinaryField(blank=True, null=True, help_text="The context, see `moments_app.context.kept`."),
        ),
    ]
