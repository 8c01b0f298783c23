#!/bin/sh
# Creates the folder `secrets` for compose.yaml, with a new secret key and new database passwords. The files are readable by
# all users, because each container runs as its own user. On the host, only the owner of the folder can open it.
set -eu

new() { openssl rand -hex 32; }
mkdir -m 700 secrets
cd secrets
umask 022
new > postgres_password
new > SECRET_KEY
echo "postgres://memory:$(new)@database/memory" > DATABASE_URL
echo "postgres://memory_web_login:$(new)@database/memory" > WEB_DATABASE_URL
echo "postgres://memory_worker_login:$(new)@database/memory" > WORKER_DATABASE_URL
: > ENGINE__API_KEY
