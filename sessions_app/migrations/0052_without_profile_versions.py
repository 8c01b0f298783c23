from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0051_help_texts")]

    operations = [migrations.DeleteModel("ProfileVersion")]
