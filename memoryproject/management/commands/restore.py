from memoryproject.backup import restore
from memoryproject.management.backup_command import BackupCommand


class Command(BackupCommand):
    help = "Restores a file that backup wrote, into a database without data."
    act = staticmethod(restore)
    done = "{what} are restored. Now: manage.py verify"
