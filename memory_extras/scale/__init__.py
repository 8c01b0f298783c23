"""Support for an installation on several servers: a Citus cluster, a read replica for pages, archives in a bucket."""
