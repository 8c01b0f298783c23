from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

KINDS = ("factembedding", "momentembedding", "turnembedding")
FIELDS = {
    "refusal": models.CharField(
        blank=True, db_default="", default="", max_length=255, help_text="What the endpoint said last."
    ),
    "refusals": models.PositiveSmallIntegerField(db_default=0, default=0, help_text="How often it refused the text."),
    "ask_again_at": models.DateTimeField(
        null=True, help_text="When a refused text is sent again; blank: with the next."
    ),
}


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while texts are embedded; the columns rewrite no table

    dependencies = [
        ("moments_app", "0037_what_waits"),
    ]

    operations = [
        *(
            migrations.AddField(model_name=kind, name=name, field=field)
            for kind in KINDS
            for name, field in FIELDS.items()
        ),
        *(
            AddIndexConcurrently(
                model_name=kind,
                index=models.Index(fields=["model", "ask_again_at"], condition=Q(vector=None), name=f"{kind}_refused"),
            )
            for kind in KINDS
        ),
    ]
