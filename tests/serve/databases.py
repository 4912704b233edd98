"""Real databases for the tests: a SQLite file, and a PostgreSQL cluster of the tests' own."""

import getpass
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

KINDS = ("sqlite", "postgres")


def pg_bin() -> Path | None:
    """Where PostgreSQL's programs are; Debian keeps them off the path."""
    found = shutil.which("pg_ctl")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


def disk_folder(prefix: str) -> Path:
    """A new folder on a disk: where temporary files are kept in memory, below /var/tmp."""
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    temporary = Path(tempfile.gettempdir()).resolve()
    mount = next(place for place in (temporary, *temporary.parents) if place in mounts)
    in_memory = mounts[mount] in ("tmpfs", "ramfs")
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp" if in_memory else None))


class Cluster:
    """A PostgreSQL server that only this machine's socket reaches, run by a user who is not root."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.folder = disk_folder("abaca-pg-")
        self.user = "postgres" if os.getuid() == 0 else getpass.getuser()
        shutil.chown(self.folder, self.user)
        self._run("initdb", "--auth=trust", "--username=abaca", "--encoding=UTF8", "--no-instructions")
        self.start()

    def start(self, more: str = "", **environment: str) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} {more}"
        arguments = "-w", "-t", "120", "-o", options, "-l", str(self.folder / "log"), "start"
        self._run("pg_ctl", *arguments, **environment)

    def stop(self, how: str = "fast") -> None:
        """`immediate` is a crash: what was not on disk is lost."""
        self._run("pg_ctl", "-w", "-t", "120", "-m", how, "stop")

    def freeze(self) -> None:
        """Stop every process of it: connections stay open and nothing answers."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]))
        return [first, *first.children(recursive=True)]

    def database(self, name: str, *options: str) -> str:
        """The address of a new database."""
        command = [self.programs / "createdb", "-h", self.folder, "-U", "abaca", *options, name]
        subprocess.run(command, check=True, capture_output=True)
        return f"postgresql://abaca@/{name}?host={self.folder}"

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str, **environment: str) -> None:
        user = self.user if os.getuid() == 0 else None
        done = subprocess.run(
            [self.programs / program, "-D", self.folder / "data", *arguments],
            user=user,
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"
