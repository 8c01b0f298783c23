from django.db import migrations

from sessions_app.row_security import CREATE_ROLE, protect


class Migration(migrations.Migration):
    """Requests see the rows of one person only."""

    dependencies = [("sessions_app", "0001_initial")]

    operations = [
        CREATE_ROLE,
        protect("sessions_app_userprofile", "id", "SELECT, UPDATE"),
        protect("sessions_app_session"),
        protect("sessions_app_message"),
        protect("sessions_app_event", "user_pk", "SELECT, INSERT"),
    ]
