from django.db import migrations, models

from sessions_app.word_search import CREATE_FUNCTIONS, add_search_vector, recall


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0003_formation"),
    ]

    operations = [
        migrations.AlterField(
            model_name="message",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                on_delete=models.deletion.CASCADE,
                related_name="messages",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["user", "-created_at", "-id"], name="message_user_newest"),
        ),
        migrations.AddField(
            model_name="session",
            name="counted_message_count",
            field=models.PositiveBigIntegerField(
                default=0, help_text="Turns there were when its person's words were last counted."
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("message_count__gt", models.F("counted_message_count") * 1.25)),
                fields=["user"],
                name="session_grown",
            ),
        ),
        CREATE_FUNCTIONS,
        add_search_vector("sessions_app_message", "content"),
        recall(
            "sessions_app_message",
            scope="'u' || user_id",
            time="created_at",
            condition="kind = 'turn' AND role <> 'system'",
        ),
    ]
