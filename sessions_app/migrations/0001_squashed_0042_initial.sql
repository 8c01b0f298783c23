-- The name stems from the time when the column was added.
ALTER TABLE sessions_app_userprofile
    RENAME CONSTRAINT sessions_app_userpro_application_id_074d5f17_fk_sessions_ TO user_profile_application;

-- Roles belong to the whole server. Another database, a concurrent migration or an administrator may have created one,
-- and this owner may lack the right to create it. The end tries what matters: taking the role.
DO $$ DECLARE role text; BEGIN
    FOREACH role IN ARRAY ARRAY['memory_request', 'memory_operator', 'memory_web', 'memory_admin', 'memory_worker'] LOOP
        BEGIN EXECUTE format(
            'CREATE ROLE %I NOLOGIN %s', role,
            CASE WHEN role IN ('memory_request', 'memory_operator') THEN 'INHERIT' ELSE 'NOINHERIT' END
        );
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL; END;
        BEGIN EXECUTE format('GRANT %I TO CURRENT_USER', role);
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; END;
        EXECUTE format('SET LOCAL ROLE %I', role);
        RESET ROLE;
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO memory_operator;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO memory_operator;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO memory_operator;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO memory_operator;

-- Its cost is that of reading a row's words (25 µs), so that the planner prefers the index however small the table is.
CREATE FUNCTION memory_words(scope text, vector tsvector) RETURNS text[]
        LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1000 AS $$
            SELECT COALESCE(array_agg(scope || ' ' || lexeme), '{}') FROM unnest(tsvector_to_array(vector)) lexeme
        $$;

-- Marks a row for indexing, because its words are not those of its text.
CREATE FUNCTION memory_words_outdated() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.search_version := 0; RETURN NEW; END $$;

-- By which a transaction says for whom it works. Where tables are distributed, `distribute` puts one in its place that
-- tells the other nodes too.
CREATE FUNCTION memory_set(name text, value text) RETURNS text LANGUAGE sql VOLATILE AS $$
        SELECT pg_catalog.set_config(name, value, true)
    $$;

-- Each asks for turns apart from the statement that calls it: where turns are distributed, none may look for turns for
-- each row of a table that is not. They see what their caller sees.
CREATE FUNCTION first_words(person bigint, session bigint, most integer) RETURNS text LANGUAGE plpgsql STABLE AS $$
    BEGIN
        RETURN (
            SELECT left(content, most) FROM public.sessions_app_message
            WHERE session_id = session AND user_id = person AND kind = 'turn' AND role = 'user' AND retracted_at IS NULL
            ORDER BY sequence LIMIT 1
        );
    END $$;

CREATE FUNCTION sequences_of_turns(person bigint, session bigint, ids bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql STABLE AS $$
    BEGIN
        RETURN ARRAY(
            SELECT sequence FROM public.sessions_app_message
            WHERE user_id = person AND session_id = session AND id = ANY (ids) AND kind = 'turn' ORDER BY sequence
        );
    END $$;

ALTER TABLE auth_user ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON auth_user TO memory_operator USING (id = NULLIF(current_setting('memory.operator', true), '')::bigint);

ALTER TABLE django_admin_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON django_admin_log TO memory_operator USING (user_id = NULLIF(current_setting('memory.operator', true), '')::bigint);

ALTER TABLE sessions_app_apikey ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON sessions_app_apikey TO memory_operator USING (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE sessions_app_application ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON sessions_app_application TO memory_operator USING (false);
CREATE POLICY operators_read ON sessions_app_application FOR SELECT TO memory_operator USING (id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE sessions_app_archive ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_archive TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON sessions_app_archive TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_archive.user_id));
GRANT SELECT, DELETE ON sessions_app_archive TO memory_request;

ALTER TABLE sessions_app_dailylimit ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_dailylimit TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON sessions_app_dailylimit TO memory_operator USING ((EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_dailylimit.user_id)) OR (EXISTS (SELECT FROM sessions_app_apikey seen WHERE seen.id = sessions_app_dailylimit.key_id)));
CREATE POLICY operators_read ON sessions_app_dailylimit FOR SELECT TO memory_operator USING (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));
GRANT SELECT ON sessions_app_dailylimit TO memory_request;

ALTER TABLE sessions_app_dailyusage ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_dailyusage TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON sessions_app_dailyusage TO memory_operator USING ((EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_dailyusage.user_id)) OR (EXISTS (SELECT FROM sessions_app_apikey seen WHERE seen.id = sessions_app_dailyusage.key_id)));
CREATE POLICY operators_read ON sessions_app_dailyusage FOR SELECT TO memory_operator USING (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));
GRANT SELECT ON sessions_app_dailyusage TO memory_request;

ALTER TABLE sessions_app_event ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_event TO memory_request USING (user_pk = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON sessions_app_event TO memory_operator USING (CASE WHEN user_pk IS NULL THEN (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[])) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_event.user_pk)) END);
GRANT SELECT, INSERT ON sessions_app_event TO memory_request;

ALTER TABLE sessions_app_loginlimit ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON sessions_app_loginlimit TO memory_operator USING (false);
CREATE POLICY operators_read ON sessions_app_loginlimit FOR SELECT TO memory_operator USING (login_id = NULLIF(current_setting('memory.operator', true), '')::bigint);

ALTER TABLE sessions_app_message ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_message TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY operators ON sessions_app_message TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_message.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON sessions_app_message TO memory_request;

ALTER TABLE sessions_app_oauthclient ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON sessions_app_oauthclient TO memory_operator USING (false);
CREATE POLICY operators_read ON sessions_app_oauthclient FOR SELECT TO memory_operator USING (true);

ALTER TABLE sessions_app_oauthgrant ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON sessions_app_oauthgrant TO memory_operator USING (EXISTS (SELECT FROM sessions_app_apikey seen WHERE seen.id = sessions_app_oauthgrant.key_id));

ALTER TABLE sessions_app_profileversion ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_profileversion TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON sessions_app_profileversion TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_profileversion.user_id));
GRANT SELECT, INSERT ON sessions_app_profileversion TO memory_request;

ALTER TABLE sessions_app_session ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_session TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY operators ON sessions_app_session TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_session.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON sessions_app_session TO memory_request;

ALTER TABLE sessions_app_userprofile ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON sessions_app_userprofile TO memory_request USING (id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON sessions_app_userprofile TO memory_operator USING (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));
GRANT SELECT, UPDATE ON sessions_app_userprofile TO memory_request;
