from pathlib import Path

from memoryproject.database.backup import Manifest, Say, backup
from memoryproject.management.backup_command import BackupCommand


class Command(BackupCommand):
    help = "Write one file with the database, archived turns, and the key that was created in DATA_DIR."
    done = "{file}: {what}."

    def act(self, path: Path, say: Say, passphrase: str) -> Manifest:
        return backup(path, say, passphrase)
