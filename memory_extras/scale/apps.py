from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class ScaleConfig(AppConfig):
    """Turns on a Citus cluster, pages read from a replica, archives in a bucket."""

    name = "memory_extras.scale"
    label = "scale"

    def ready(self) -> None:
        from memory_extras.scale import distribution, replica
        from memoryproject.database.base import DatabaseWrapper
        from sessions_app.database import several_servers

        DatabaseWrapper.SchemaEditorClass = distribution.SchemaEditor
        several_servers.distributed_table_sources.append(distribution.distributed_tables)
        several_servers.set_reader(replica)
        # Other apps are installed earlier, so their receivers of this signal run first.
        post_migrate.connect(distribution.redistribute, sender=apps.get_app_config("moments_app"))
