from django.db import migrations

from moments_app.vector_search import nearest


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0011_summarised_sequence")]

    operations = [
        migrations.RunSQL(nearest(table, shards_of=shards_of).sql, migrations.RunSQL.noop)
        for table, shards_of in (
            ("moments_app_factembedding", "moments_app_memoryatom"),
            ("moments_app_momentembedding", ""),
            ("moments_app_turnembedding", ""),
        )
    ]
