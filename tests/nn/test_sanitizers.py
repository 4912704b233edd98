"""The C library under AddressSanitizer and UndefinedBehaviorSanitizer, through the tests of its operations."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import abaca

HERE, ROOT = Path(__file__).parent / "ops", Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "abaca" / "nn" / "ops" / "native").glob("*.c"))
TESTS = ("test_primitives.py", "test_answer.py", "test_attention.py", "test_gru.py")
FLAGS = ("-std=c11", "-O1", "-g", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def runtime(name: str) -> Path | None:
    """The library of a sanitizer, as gcc finds it."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    found = subprocess.run([gcc, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(found).resolve() if Path(found).is_absolute() else None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the runtimes are loaded as on Linux")
def test_the_native_library_reads_and_writes_what_is_its_own(tmp_path: Path) -> None:
    """A copy of the package has a library with sanitizers; a wrong access ends the process."""
    runtimes = [runtime("libasan.so"), runtime("libubsan.so")]
    if None in runtimes:
        pytest.skip("gcc has no sanitizers here")
    package = tmp_path / "abaca"
    shutil.copytree(Path(abaca.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    library = package / "nn" / "ops" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(["gcc", *FLAGS, *map(str, SOURCES), "-lm", "-o", library], check=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "LD_PRELOAD": " ".join(map(str, runtimes)),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(HERE / name) for name in TESTS)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "passed" in done.stdout
