"""SQL of landed migrations for row-level security and for the first full-text search."""

from django.db.migrations import RunSQL

from sessions_app.row_security import PERSON, ROLE

CREATE_ROLE = RunSQL(
    # Roles belong to the whole server. Another database, a concurrent migration or an administrator may have created
    # this one, and this owner may lack the right to create it. The end tries what matters: taking the role.
    sql=f"""
        DO $$ BEGIN CREATE ROLE {ROLE} NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL; END $$;
        DO $$ BEGIN GRANT {ROLE} TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; END $$;
        SET LOCAL ROLE {ROLE};
        RESET ROLE;
    """,
    reverse_sql=RunSQL.noop,
)


def text_search(table: str) -> RunSQL:
    """Return a migration operation that creates `search_<table>`, through which requests use the index of words.

    Under row security, PostgreSQL reads an index only for leakproof operators, and `@@` is not leakproof. The function
    runs as the tables' owner and enforces the limit itself: whoever the caller names, a request finds only its acting
    user's rows. It takes the person's primary key, a text of which any word may match, a condition on the rows, and
    the most rows wanted. It returns the ids of the newest rows with their rank between 0 and 1. Words that are in every
    row cost no more than rare ones: the statement is planned with its values, so it walks the newest rows for common
    words and the index for rare ones. `search_words` replaces this function.
    """
    return RunSQL(
        sql=f"""
            CREATE FUNCTION search_{table}(person bigint, words text, wanted_status text, most integer)
            RETURNS TABLE (found bigint, rank real)
            LANGUAGE plpgsql STABLE SECURITY DEFINER
            SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
            DECLARE
                any_word tsquery := replace(plainto_tsquery('english', words)::text, '&', '|');
                acting bigint := {PERSON};
            BEGIN
                RETURN QUERY SELECT newest.id, ts_rank(newest.search_vector, any_word, 32) FROM (
                    SELECT id, search_vector FROM {table}
                    WHERE user_id = acting AND status = wanted_status AND search_vector @@ any_word
                    ORDER BY updated_at DESC, id DESC LIMIT most
                ) newest;
            END $$;
            REVOKE ALL ON FUNCTION search_{table} FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION search_{table} TO {ROLE};
        """,  # noqa: S608 (names of our own tables)
        reverse_sql=f"DROP FUNCTION search_{table}",
    )


def search_words(table: str) -> RunSQL:
    """Return a migration operation that creates `search_<table>` for stems made by the application (`lexemes.py`).

    The function is like the one of `text_search`, but takes a `tsquery` of all stems that may index the words, and the
    average number of stems per word: `ts_rank` divides by the number of stems, while a text rarely has more than one of
    a word's. The earlier function stays for processes that still run the previous version.
    """
    parameters = "person bigint, words tsquery, forms real, wanted_status text, most integer"
    return RunSQL(
        sql=f"""
            CREATE FUNCTION search_{table}({parameters}) RETURNS TABLE (found bigint, rank real)
            LANGUAGE plpgsql STABLE SECURITY DEFINER
            SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
            DECLARE
                acting bigint := {PERSON};
            BEGIN
                RETURN QUERY SELECT newest.id, (newest.rank / (newest.rank + 1))::real FROM (
                    SELECT id, ts_rank(search_vector, words) * forms AS rank FROM {table}
                    WHERE user_id = acting AND status = wanted_status AND search_vector @@ words
                    ORDER BY updated_at DESC, id DESC LIMIT most
                ) newest;
            END $$;
            REVOKE ALL ON FUNCTION search_{table}({parameters}) FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION search_{table}({parameters}) TO {ROLE};
        """,  # noqa: S608 (names of our own tables)
        reverse_sql=f"DROP FUNCTION search_{table}({parameters})",
    )


def grant(table: str, privileges: str) -> RunSQL:
    """Return a migration operation that gives requests access to a table that holds nothing personal."""
    return RunSQL(sql=f"GRANT {privileges} ON {table} TO {ROLE}", reverse_sql=f"REVOKE ALL ON {table} FROM {ROLE}")
