"""Commands work where the functions of POSIX are missing, packages outside the checkout, and bin/demo from anywhere."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Removes what Windows does not have, after the libraries have been imported, and runs one command in this process.
WITHOUT_POSIX = """
import os, shutil, signal, sys
import h5py, numpy, psutil, sacrebleu, sentencepiece, torch, typer, rich.live, rich.progress

memory, disk = psutil.virtual_memory(), psutil.disk_usage(".")  # on Windows psutil needs no system files
psutil.virtual_memory, psutil.disk_usage = lambda: memory, lambda folder: disk

POSIX_ONLY = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "curses", "syslog")
for name in POSIX_ONLY:
    sys.modules[name] = None  # an import raises ImportError
for name in ("fork", "forkpty", "killpg", "getpgid", "setsid", "sched_getaffinity", "sysconf", "fchown", "fchmod",
             "chown", "mkfifo", "statvfs", "fstatvfs", "getuid", "geteuid", "getloadavg", "O_NONBLOCK",
             "O_NOFOLLOW", "O_DIRECTORY"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGPIPE", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD"):
    delattr(signal, name)

def refuse(pid, number):
    raise AssertionError("os.kill ends a process on Windows")

os.kill = refuse
shutil._use_fd_functions, shutil._rmtree_impl = False, shutil._rmtree_unsafe  # as on Windows
opened = os.open

def open_file(path, flags, *rest, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "Windows opens no folder", path)
    return opened(path, flags, *rest, **options)

os.open = open_file
fsync = os.fsync

def flush(descriptor):
    os.pwrite(descriptor, b"", 0)  # an error unless the file is open for writing
    fsync(descriptor)

os.fsync = flush
real_open = open
import io, pathlib

def no_system_files(path, *rest, **options):
    if isinstance(path, (str, pathlib.Path)) and str(path).startswith(("/proc/", "/dev/", "/sys/")):
        raise FileNotFoundError(2, "Windows has no such file", str(path))
    return real_open(path, *rest, **options)

io.open = no_system_files
__builtins__.open = no_system_files
from nmtalign.cli.app import main
main()
"""


def without_posix(*arguments, cwd, stdin=b""):
    call = [sys.executable, "-c", WITHOUT_POSIX, *map(str, arguments)]
    result = subprocess.run(call, cwd=cwd, input=stdin, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


@pytest.mark.slow
def test_every_step_works_without_the_functions_of_posix(tmp_path):
    without_posix("sample", "demo", "--pairs", "60", cwd=tmp_path)
    demo = tmp_path / "demo"
    without_posix("prep", "--set", "workers=1", cwd=demo)
    without_posix("prep", "--set", "workers=1", "--force", cwd=demo)
    without_posix("train", "--max-updates", "3", "--epochs", "0", cwd=demo)
    without_posix("train", "--max-updates", "5", "--epochs", "0", cwd=demo)
    source = (demo / "test.en").read_bytes()
    lines = source.count(b"\n")
    assert without_posix("translate", "--beam", "1", cwd=demo, stdin=source).count(b"\n") == lines
    without_posix("translate", "test.en", "--beam", "1", "-o", "out.fr.gz", cwd=demo)
    without_posix("translate", "test.en", "--beam", "1", "-o", "out.fr", cwd=demo)
    assert (demo / "out.fr").read_bytes().count(b"\n") == lines
    without_posix("score", "out.fr", cwd=demo)
    without_posix("align", "-o", "alignments.h5", cwd=demo)
    without_posix("view", "alignments.h5", "-o", "page.html", cwd=demo)
    assert "</html>" in (demo / "page.html").read_text()
    assert without_posix("export", "alignments.h5", cwd=demo).count(b"\n") == lines
    without_posix("info", "model", cwd=demo)
    assert not [path for path in demo.rglob("*") if ".partial" in path.name or ".prep" in path.name]


@pytest.mark.slow
def test_the_packages_install_and_run_outside_the_checkout(tmp_path):
    """The source package is built from the checkout, and the wheel from the source package."""
    run = [sys.executable, "-m"]
    subprocess.run([*run, "build", "--no-isolation", "-o", tmp_path / "dist", ROOT], check=True, capture_output=True)
    source, wheel = next(tmp_path.glob("dist/*.tar.gz")), next(tmp_path.glob("dist/*.whl"))
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "nmtalign/docs/tutorial.md"} <= packed
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "nmtalign").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert files <= packed
    assert files <= set(zipfile.ZipFile(wheel).namelist())
    place = tmp_path / "installed"
    install = [*run, "pip", "install", "-q", "--no-deps", "--no-index", "--target", place, wheel]
    subprocess.run(install, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONWARNINGS": "error"}
    demo = tmp_path / "demo"

    def nmtalign(*arguments, cwd=demo):
        program = [place / "bin" / "nmtalign", *arguments]
        result = subprocess.run(program, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    nmtalign("sample", "demo", "--pairs", "60", cwd=tmp_path)
    nmtalign("prep")
    nmtalign("train", "--preset", "tiny", "--max-updates", "3", "--epochs", "0")
    nmtalign("translate", "test.en", "--beam", "1", "-o", "out.fr")
    nmtalign("link", "train.en", "train.fr", "-o", "aligner")
    nmtalign("align", "-o", "alignments.h5")
    nmtalign("view", "alignments.h5", "-o", "page.html")
    assert "</html>" in (demo / "page.html").read_text()
    assert nmtalign("info", "--card", "model").startswith("---\nlanguage")
    assert "nmtalign" in nmtalign("docs", "tutorial")
    code = "import nmtalign as n; print(n.__file__, n.application([n.Translator.load('model')]))"
    result = subprocess.run([sys.executable, "-c", code], cwd=demo, env=environment, capture_output=True, text=True)
    assert result.stdout.startswith(str(place)), result.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_demo_gives_a_good_model_two_heat_maps_and_what_to_do_next(tmp_path):
    result = subprocess.run([ROOT / "bin/demo"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    bleu = float(re.search(r"^out\.fr\s+([\d.]+)", result.stdout, re.M)[1])
    assert bleu >= 60
    assert "AER" in result.stdout
    assert "nmtalign prep train.en train.fr" in result.stdout
    assert (ROOT / "demo-workspace/alignment.png").read_bytes().startswith(b"\x89PNG")
    events = [json.loads(line) for line in (ROOT / "demo-workspace/model/train.jsonl").read_text().splitlines()]
    assert events[-1]["complete"]
    page = (ROOT / "demo-workspace/live.html").read_text()
    assert page.count('data-kind="live-weights"') == 2
    last = result.stdout[result.stdout.index("Open this page first") :]
    assert last.index("live.html") < last.index("alignments.html")
    assert not list(tmp_path.iterdir())


def test_scripts_are_valid_bash():
    for script in [*(ROOT / "bin").iterdir(), *(ROOT / "examples").glob("*.sh"), ROOT / ".ci/run"]:
        if script.suffix != ".txt":
            subprocess.run(["bash", "-n", script], check=True)
