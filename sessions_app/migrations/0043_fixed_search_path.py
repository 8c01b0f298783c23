from django.db import migrations

# With `pg_temp` last, no temporary object of a caller stands for a name in a function that has its owner's rights.
FIX = """
    DO $$ DECLARE function regprocedure; BEGIN
        FOR function IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef
        AND proname ~ '^(count_usage$|recall_sessions_app_)' LOOP
            EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, public, pg_temp', function);
        END LOOP;
    END $$
"""


class Migration(migrations.Migration):
    """Fix where functions with their owner's rights look names up."""

    dependencies = [("sessions_app", "0042_functions_on_turns")]

    operations = [migrations.RunSQL(FIX, migrations.RunSQL.noop)]
