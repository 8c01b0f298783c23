from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """The index of stored items that expire."""

    atomic = False

    dependencies = [("moments_app", "0131_item_ttl")]

    operations = [
        AddIndexConcurrently(
            "storeditem",
            models.Index(fields=["expires_at"], condition=Q(("expires_at__isnull", False)), name="item_expires"),
        ),
    ]
