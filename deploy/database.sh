#!/bin/sh
# Creates the database, its owner, and the logins of web servers and workers. None of these roles is a superuser. Run this
# script once, as a database administrator. It reads the passwords from the URLs that deploy/secrets.sh writes to SECRETS_DIR.
set -eu

password() { sed 's|^[^:]*://[^:]*:\([^@]*\)@.*|\1|' "${SECRETS_DIR:-/run/secrets}/$1"; }
psql --set ON_ERROR_STOP=1 --set owner_password="$(password DATABASE_URL)" --set web_password="$(password WEB_DATABASE_URL)" \
    --set worker_password="$(password WORKER_DATABASE_URL)" --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
CREATE ROLE memory LOGIN PASSWORD :'owner_password';
CREATE DATABASE memory OWNER memory;
\connect memory
CREATE EXTENSION vector;
-- The output of `manage.py create_roles memory --web memory_web_login --worker memory_worker_login`.
DO $$ BEGIN CREATE ROLE memory_request NOLOGIN NOINHERIT; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE memory_operator NOLOGIN NOINHERIT; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE memory_web NOLOGIN NOINHERIT; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE memory_admin NOLOGIN NOINHERIT; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE memory_worker NOLOGIN NOINHERIT; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE memory_functions NOLOGIN NOINHERIT; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT memory_request TO memory_web;
GRANT memory_operator TO memory_web;
GRANT memory_admin TO memory_web;
GRANT memory_request TO memory_worker;
GRANT memory_request TO "memory";
GRANT memory_operator TO "memory";
GRANT memory_web TO "memory";
GRANT memory_admin TO "memory";
GRANT memory_worker TO "memory";
GRANT memory_functions TO "memory";
DO $$ BEGIN CREATE ROLE "memory_web_login" LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT memory_web TO "memory_web_login";
DO $$ BEGIN CREATE ROLE "memory_worker_login" LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT memory_worker TO "memory_worker_login";
ALTER ROLE memory_web_login PASSWORD :'web_password';
ALTER ROLE memory_worker_login PASSWORD :'worker_password';
SQL
