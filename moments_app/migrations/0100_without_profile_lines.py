from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0099_statements_of_profiles")]

    operations = [migrations.DeleteModel("ProfileLine"), migrations.DeleteModel("ProfilePhrase")]
