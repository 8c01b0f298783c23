"""Additional databases for a test run on a Citus cluster."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection

from tests.support.other_database import connected_to

SHARDS = 4  # per table; the default of installations would take longer


class Cluster:
    """An empty database on each server of the cluster, coordinator first. At first, the servers don't know each other.

    Args:
        name: The name of the databases.
        servers: The host and port of each server.
    """

    def __init__(self, name: str, servers: list[tuple[str, int]]) -> None:
        self.name = name
        self.servers = servers

    def execute(self, server: int, statement: str) -> None:
        """Execute a statement in the database on one server."""
        with self.connected(server) as session:
            session.execute(statement)

    def connected(self, server: int, database: str = "") -> psycopg.Connection:
        """Return a connection outside of Django."""
        host, port = self.servers[server]
        user = connection.settings_dict["USER"]
        return psycopg.connect(host=host, port=port, user=user, dbname=database or self.name, autocommit=True)

    def join(self) -> None:
        """Register the servers with each other."""
        for server in range(len(self.servers)):
            self.execute(server, "CREATE EXTENSION citus")
        host, port = self.servers[0]
        self.execute(0, f"SELECT citus_set_coordinator_host('{host}', {port})")
        for host, port in self.servers[1:]:
            self.execute(0, f"SELECT citus_add_node('{host}', {port})")


@contextmanager
def other_cluster() -> Iterator[Cluster]:
    """Use the coordinator's database of a new cluster, which is dropped afterward."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nodename, nodeport FROM pg_dist_node ORDER BY groupid")
        cluster = Cluster(f"test_cluster_{os.getpid()}", cursor.fetchall())
    for server in range(len(cluster.servers)):
        with cluster.connected(server, "postgres") as session:
            session.execute(f"CREATE DATABASE {cluster.name}")
            session.execute(f"ALTER DATABASE {cluster.name} SET citus.shard_count = {SHARDS}")
    try:
        with connected_to(cluster.name):
            yield cluster
    finally:
        for server in range(len(cluster.servers)):
            with cluster.connected(server, "postgres") as session:
                session.execute(f"DROP DATABASE {cluster.name} WITH (FORCE)")
