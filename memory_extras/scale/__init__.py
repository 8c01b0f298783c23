"""An installation on several servers: turns on a Citus cluster, pages read from a replica, archives in a bucket."""
