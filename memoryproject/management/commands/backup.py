from memoryproject.backup import backup
from memoryproject.management.backup_command import BackupCommand


class Command(BackupCommand):
    help = "Writes everything into one file: rows, archived turns, and the key that was made in DATA_DIR."
    act = staticmethod(backup)
    done = "{file}: {what}."
