"""A package of npm's, unpacked: its files as its authors published them. None of its scripts is run."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path


class NpmFailed(Exception):
    """npm could not fetch it; the message holds what it said."""


def unpack(package: str, folder: Path) -> None:
    """`package` as name@version; its files are in `folder` afterwards, which is made."""
    with tempfile.TemporaryDirectory() as fetched:
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", fetched, package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        if done.returncode != 0:
            raise NpmFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        (archive,) = Path(fetched).iterdir()
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                path = Path(*Path(member.name).parts[1:])  # below `package/`
                if not member.isfile() or ".." in path.parts:
                    continue
                source = packed.extractfile(member)
                assert source is not None
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(source.read())
