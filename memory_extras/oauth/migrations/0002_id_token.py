import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """The column by which django-oauth-toolkit finds the ID token of OpenID Connect, which isn't used here."""

    dependencies = [("oauth", "0001_initial"), ("oauth2_provider", "0022_refreshtoken_token_family_index")]

    operations = [
        migrations.AddField(
            model_name="accesstoken",
            name="id_token",
            field=models.OneToOneField(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="access_token",
                to=settings.OAUTH2_PROVIDER_ID_TOKEN_MODEL,
                verbose_name="ID token",
            ),
        ),
    ]
