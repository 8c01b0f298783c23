"""The words of a turn are written by the application, in the language that it is in.

No row and no index is written anew: `index_words` comes to the rows there are, behind the work.
"""

from django.db import migrations, models

import sessions_app.models.searched
from sessions_app.word_search import (
    CREATE_TRIGGER_FUNCTION,
    PRICE_FUNCTION,
    recall_anew,
    words_index,
    write_search_vector,
)

SCOPE = "'u' || user_id"
BELIEVED = "kind = 'turn' AND role <> 'system' AND retracted_at IS NULL"


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0010_created_and_event_type")]

    operations = [
        PRICE_FUNCTION,
        CREATE_TRIGGER_FUNCTION,
        migrations.SeparateDatabaseAndState(
            [
                write_search_vector(
                    "sessions_app_message",
                    ["content"],
                    words_index("sessions_app_message", scope=SCOPE, condition="kind = 'turn' AND role <> 'system'"),
                )
            ],
            [
                migrations.AddField(
                    model_name="message",
                    name="search_vector",
                    field=sessions_app.models.searched.WordsField(editable=False, null=True),
                ),
                migrations.AddField(
                    model_name="message",
                    name="search_version",
                    field=models.SmallIntegerField(db_default=0, default=1, editable=False),
                ),
            ],
        ),
        recall_anew("sessions_app_message", scope=SCOPE, time="created_at", condition=BELIEVED, before=BELIEVED),
    ]
