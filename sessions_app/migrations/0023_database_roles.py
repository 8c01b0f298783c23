"""The roles of web processes, workers and operators' pages; what they may is said at the end of each `migrate`."""

from django.db import migrations

from sessions_app.database_roles import CREATE_ROLES


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0022_speakers")]

    operations = [CREATE_ROLES]
