from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """The indexes of stored items that expire, and of those with a text to embed."""

    atomic = False

    dependencies = [("moments_app", "0131_item_ttl")]

    operations = [
        AddIndexConcurrently(
            "storeditem",
            models.Index(fields=["expires_at"], condition=Q(("expires_at__isnull", False)), name="item_expires"),
        ),
        AddIndexConcurrently(
            "storeditem",
            models.Index(fields=["user", "id"], condition=Q(("text", ""), _negated=True), name="item_with_text"),
        ),
    ]
