"""A database's schema, to check whether two ways of migrating have the same result.

The order of columns is ignored, because `ADD COLUMN` appends. Conditions are compared without casts and parentheses,
because PostgreSQL formats a list differently after parsing its own output. The autovacuum option of test tables is
ignored.
"""

import re

from django.db import connection

_CAST = re.compile(r"::(text|character varying)(\[\])?|[()]")

_PARTS_SQL = """
WITH own AS (
    SELECT c.oid, c.relname, c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.relacl,
        nullif(array_remove(c.reloptions, 'autovacuum_enabled=false'), '{}') AS reloptions
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'S', 'p')
)
SELECT 'relation ' || relname, concat_ws(
    ' ', relkind, relrowsecurity, relforcerowsecurity, reloptions,
    ARRAY(SELECT acl::text FROM unnest(relacl) acl ORDER BY 1)
) FROM own
UNION ALL
SELECT format('column %s.%s', relname, attname), concat_ws(
    ' ', format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'NOT NULL' END, attidentity, attgenerated,
    pg_get_expr(adbin, adrelid), attacl, attcollation::regcollation
) FROM own JOIN pg_attribute ON attrelid = own.oid AND attnum > 0 AND NOT attisdropped AND relkind <> 'S'
LEFT JOIN pg_attrdef ON adrelid = own.oid AND adnum = attnum
UNION ALL
SELECT format('constraint %s.%s', relname, conname), pg_get_constraintdef(c.oid) || ' ' || convalidated
FROM own JOIN pg_constraint c ON conrelid = own.oid
UNION ALL
SELECT 'index ' || indexrelid::regclass, concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid, indisclustered)
FROM own JOIN pg_index ON indrelid = own.oid
UNION ALL
SELECT format('trigger %s.%s', relname, tgname), concat_ws(' ', pg_get_triggerdef(t.oid), tgenabled)
FROM own JOIN pg_trigger t ON tgrelid = own.oid AND NOT tgisinternal
UNION ALL
SELECT format('policy %s.%s', relname, polname), concat_ws(
    ' ', polcmd, polpermissive, polroles::regrole[], pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)
) FROM own JOIN pg_policy ON polrelid = own.oid
UNION ALL
SELECT 'function ' || p.oid::regprocedure, concat_ws(' ', pg_get_functiondef(p.oid), proacl)
FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e')
UNION ALL
SELECT 'extension ' || extname, extversion FROM pg_extension
"""


def schema() -> dict[str, str]:
    """Return the definition of each part, by its kind and name."""
    with connection.cursor() as cursor:
        cursor.execute(_PARTS_SQL)
        return {part: _plain(part, text) for part, text in cursor.fetchall()}


def _plain(part: str, text: str) -> str:
    return _CAST.sub("", text) if part.startswith(("constraint", "index")) else text


def differences(schema: dict[str, str], other: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the parts that differ, with both definitions."""
    return {
        part: (schema.get(part), other.get(part))
        for part in sorted({*schema, *other})
        if schema.get(part) != other.get(part)
    }
