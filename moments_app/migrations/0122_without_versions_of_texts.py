from django.db import migrations


class Migration(migrations.Migration):
    """Remove the versions of streams' texts. The history of the lines replaces them."""

    dependencies = [("moments_app", "0121_texts_are_lines")]

    operations = [
        migrations.RemoveIndex(model_name="memoryatom", name="atom_shown_in"),
        migrations.RemoveIndex(model_name="memoryatom", name="atom_new"),
        migrations.RemoveField(model_name="memoryatom", name="absorbed_in"),
        migrations.RemoveField(model_name="memoryatom", name="shown_in"),
        migrations.DeleteModel(name="StreamVersion"),
    ]
