from django.db import migrations

FIX = """
    DO $$ DECLARE function regprocedure; BEGIN
        FOR function IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef
        AND proname ~ '^(index_vectors|shards_seen|vocabularies_seen)$|^(recall|nearest|search)_moments_app_' LOOP
            EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, public, pg_temp', function);
        END LOOP;
    END $$
"""


class Migration(migrations.Migration):
    """Fix where functions with their owner's rights look names up, as in sessions_app."""

    dependencies = [
        ("moments_app", "0081_phrases_of_profiles"),
        ("sessions_app", "0043_fixed_search_path"),
    ]

    operations = [migrations.RunSQL(FIX, migrations.RunSQL.noop)]
