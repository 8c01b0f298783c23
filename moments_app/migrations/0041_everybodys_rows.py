"""A person's request reads the rows that belong to everybody, and changes none of them."""

from django.db import migrations

from sessions_app.row_security import read_everybodys


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0040_candidates")]

    operations = [
        read_everybodys("moments_app_job"),
        read_everybodys("moments_app_memorystream"),
        read_everybodys("moments_app_factembedding"),
        # What was taken back may have said what nobody but its person is to see.
        read_everybodys("moments_app_memoryatom", condition="state <> 'evicted'"),
        read_everybodys("moments_app_streamversion", condition="undone_at IS NULL"),
    ]
