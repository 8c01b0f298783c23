"""The words of facts, moments and entities are written by the application, in the language that they are in.

No row and no index is written anew: `index_words` comes to the rows there are, behind the work.
"""

from django.db import migrations, models

import sessions_app.models.searched
from sessions_app.row_security import search_words
from sessions_app.word_search import recall_anew, words_index, write_search_vector

FACTS = "state = 'active' AND atom_type = 'fact'"
ATOMS_SCOPE = "COALESCE('u' || user_id, 's' || stream_id)"
MOMENTS_SCOPE = "'u' || user_id"
VERSION = models.SmallIntegerField(db_default=0, default=1, editable=False)


def words() -> models.Field:
    return sessions_app.models.searched.WordsField(editable=False, null=True)


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0021_operators_filters"),
        ("sessions_app", "0011_words_of_the_application"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            [
                write_search_vector(
                    "moments_app_memoryatom",
                    ["content"],
                    words_index("moments_app_memoryatom", scope=ATOMS_SCOPE, condition=FACTS),
                ),
                write_search_vector(
                    "moments_app_moment",
                    ["name", "summary", "detail"],
                    words_index("moments_app_moment", scope=MOMENTS_SCOPE),
                    "CREATE INDEX moment_search ON moments_app_moment USING gin (search_vector)",
                ),
                write_search_vector(
                    "moments_app_entity",
                    ["title", "body"],
                    "CREATE INDEX entity_search ON moments_app_entity USING gin (search_vector)",
                ),
            ],
            [
                migrations.AddField("memoryatom", "search_vector", words()),
                migrations.AddField("memoryatom", "search_version", VERSION.clone()),
                migrations.AlterField("moment", "search_vector", words()),
                migrations.AddField("moment", "search_version", VERSION.clone()),
                migrations.AlterField("entity", "search_vector", words()),
                migrations.AddField("entity", "search_version", VERSION.clone()),
            ],
        ),
        recall_anew("moments_app_memoryatom", scope=ATOMS_SCOPE, time="formed_at", condition=FACTS, before=FACTS),
        recall_anew("moments_app_moment", scope=MOMENTS_SCOPE, time="ends_at", condition="true", before="true"),
        search_words("moments_app_entity"),
    ]
