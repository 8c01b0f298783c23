from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0074_cheaper_policies")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="trace",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Of the request that led to it.", max_length=55
            ),
        ),
    ]
