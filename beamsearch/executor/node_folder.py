"""Folders on a machine of a cluster: our own, and those that candidates are not to see."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

# Waits for the end of its input, which is its maker's, and takes the folder away.
_REMOVES = 'exec 3<&0; { cat <&3 >/dev/null; rm -rf -- "$0"; sleep 5; rm -rf -- "$0"; } &'


def own_folder(prefix: str) -> tuple[Path, subprocess.Popen[bytes]]:
    """A folder that goes when this process does, and what takes it away: to be kept meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o711)  # candidates are other users, who pass through and do not look around
    remover = subprocess.Popen(
        ["sh", "-c", _REMOVES, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return folder, remover


def hidden_here(scratch: Path) -> list[str]:
    """What candidates are not to see on this machine: the run that the scratch folder is of, with
    its seed, and Ray's sockets, over which anybody may start anything."""
    runs = [folder.parent for folder in (scratch, *scratch.parents) if folder.name == ".scratch"]
    rays = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray"
    return [str(folder) for folder in (*runs, rays)]
