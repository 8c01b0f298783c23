from pathlib import Path

from memoryproject.database.backup import Manifest, Report
from memoryproject.database.restore import restore
from memoryproject.management.commands.backup import BackupCommand


class Command(BackupCommand):
    help = (
        "Restore a backup file into a database without tables. If the command is interrupted, run it again with the "
        "same file."
    )
    done = "Restored {what}. Next, run manage.py verify"

    def act(self, path: Path, report: Report, passphrase: str) -> Manifest:
        return restore(path, report, passphrase)
