import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0112_people_of_statements")]

    operations = [
        migrations.AddField(
            model_name="failuregroup",
            name="muted_causes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(),
                blank=True,
                db_default=[],
                default=list,
                help_text="Keys of the incidents that were muted. A failure can belong to several incidents.",
                size=None,
            ),
        ),
    ]
