from pathlib import Path

from memoryproject.backup import Manifest, Say, backup
from memoryproject.management.backup_command import BackupCommand


class Command(BackupCommand):
    help = (
        "Write one file with the database, the archived turns, and the secret key if the platform created it in "
        "DATA_DIR."
    )
    done = "{file}: {what}."

    def act(self, path: Path, say: Say, passphrase: str) -> Manifest:
        return backup(path, say, passphrase)
