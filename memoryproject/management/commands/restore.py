from pathlib import Path

from memoryproject.backup import Manifest, Say, restore
from memoryproject.management.backup_command import BackupCommand


class Command(BackupCommand):
    help = "Restores a file that backup wrote, into a database without data."
    done = "{what} are restored. Now: manage.py verify"

    def act(self, path: Path, say: Say) -> Manifest:
        return restore(path, say)
