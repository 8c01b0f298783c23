from django.db import migrations

REVOKED = """
    UPDATE sessions_app_apikey SET revoked_at = now()
    WHERE revoked_at IS NULL AND id IN (SELECT key_id FROM sessions_app_oauthgrant)
"""


class Migration(migrations.Migration):
    """OAuth is an extra, with tables of its own. Former grants end, because their keys opened more than `/mcp`."""

    replaces = [
        ("sessions_app", "0046_without_oauth"),
        ("sessions_app", "0051_help_texts"),
    ]

    dependencies = [("sessions_app", "0043_fixed_search_path")]

    operations = [
        migrations.RunSQL(REVOKED, migrations.RunSQL.noop),
        migrations.DeleteModel("OAuthGrant"),
        migrations.DeleteModel("OAuthClient"),
    ]
