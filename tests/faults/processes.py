"""Commands that run in forked processes, which start at once, and what is required of how they end."""

import contextlib
import fcntl
import os
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from helpers.command_line import become, import_all, run_here, sets

os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"  # as `nmtalign train` does before it imports PyTorch
PATIENCE = 120  # seconds until a command counts as hanging; the machine may be busy
DOCUMENTED = {0, 1, 2, 3, 4, 5, 6, 120, 129, 130, 143}  # exit codes; 120 is Python's: stdout could not be flushed
HARMLESS = ("nmtalign: warning: ", "nmtalign: ")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Few updates, few parameters, one thread: a second thread would not survive the fork.
SIZES = shlex.join(sets(embedding=8, hidden=16, attention_hidden=16, maxout=8, precision="fp32")) + " --threads 1"
TRAIN = f"train -q --preset tiny {SIZES} --max-updates 12 --batch-size 400"
TRAIN += " --set validate_every=4 --set checkpoint_every=3"


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (negative: the number of a signal) and what it has printed."""

    code: int
    out: bytes
    err: bytes

    def fault(self, codes=DOCUMENTED):
        """Returns "" for an end as documented: one of the exit codes, and one line on stderr for an error."""
        text = self.err.decode("utf-8", "replace")
        lines = text.splitlines()
        errors = [line for line in lines if line.startswith("nmtalign: error: ")]
        if self.code not in codes:
            return f"exit code {self.code}: {text[-300:]!r}"
        if "Traceback (most recent call last)" in text:
            return f"a traceback: {text[-500:]!r}"
        if self.code in range(1, 7) and len(errors) != 1:
            return f"exit code {self.code} with {len(errors)} lines of error: {text[-300:]!r}"
        if foreign := [line for line in lines if self.code and not line.startswith(HARMLESS)]:
            return f"a line that is not of nmtalign: {foreign[0][:300]!r}"
        if control := _CONTROL.search(text):
            return f"a control character on stderr: {control[0]!r}"
        return ""


class Process:
    """`nmtalign ARGUMENTS` in the folder `cwd`, forked; `prepare` runs in it before the command.

    Its streams are files in a temporary folder, unless `prepare` changes them.
    """

    def __init__(self, arguments, cwd, stdin=b"", prepare=lambda: None):
        self._streams = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        self._streams[0].write(stdin)
        self._streams[0].seek(0)
        self._errors, errors = os.pipe()  # no file, so that a full disk loses no line
        fcntl.fcntl(errors, fcntl.F_SETPIPE_SZ, 1 << 20)
        sys.stdout.flush()
        self.number = os.fork()
        if not self.number:
            os._exit(self._run(arguments, cwd, prepare, errors))
        os.close(errors)
        self._ended: int | None = None

    def _run(self, arguments, cwd, prepare, errors):
        try:
            os.setpgid(0, 0)
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "80"}
            request = {"arguments": list(arguments), "cwd": str(cwd), "environment": environment, "ignored": []}
            os.close(self._errors)
            become(request, [*(os.dup(stream.fileno()) for stream in self._streams), errors])
            prepare()
            return run_here()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            return 99

    def wait(self, seconds):
        """Waits for the end for at most this time; returns whether the process has ended."""
        if self._ended is None:
            descriptor = os.pidfd_open(self.number)
            ready, _, _ = select.select([descriptor], [], [], max(seconds, 0))
            os.close(descriptor)
            if ready:
                self._ended = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
        return self._ended is not None

    def kill(self):
        """Ends the process with SIGKILL."""
        if self._ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)

    def has_survivors(self):
        """Returns whether processes that the command has started are still there 10 seconds after its end."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                os.killpg(self.number, 0)
            except (ProcessLookupError, PermissionError):
                return False
            time.sleep(0.02)
        os.killpg(self.number, signal.SIGKILL)
        return True

    def end(self):
        """Waits for the end, and kills a process that hangs."""
        if not self.wait(PATIENCE):
            self.kill()
            self.wait(PATIENCE)
            return Ended(98, b"", b"it hung")
        self._streams[1].seek(0)
        out = self._streams[1].read()
        os.set_blocking(self._errors, False)
        with contextlib.suppress(BlockingIOError):  # a process that the command has left behind has it open
            return Ended(self._ended or 0, out, os.read(self._errors, 1 << 20))
        return Ended(self._ended or 0, out, b"")

    def __del__(self):
        os.close(self._errors)
        for stream in self._streams:
            stream.close()


def run(arguments, cwd, stdin=b"", prepare=lambda: None):
    """Runs `nmtalign ARGUMENTS` in a forked process."""
    return Process(arguments.split() if isinstance(arguments, str) else arguments, cwd, stdin, prepare).end()


def run_started(arguments, shell="exec {}", **options):
    """Runs `python -m nmtalign ARGUMENTS` from the beginning, in a shell command with {} in its place."""
    command = shell.format('"$@"')
    call = ["bash", "-c", command, "bash", sys.executable, "-m", "nmtalign", *arguments]
    try:
        found = subprocess.run(call, capture_output=True, timeout=PATIENCE, check=False, **options)
    except subprocess.TimeoutExpired:
        return Ended(98, b"", b"it hung")
    return Ended(found.returncode, found.stdout, found.stderr)


def needed(command, folder):
    """Runs a command that must succeed."""
    ended = run(command, folder)
    if ended.code:
        raise RuntimeError(f"nmtalign {command}: {ended.err.decode(errors='replace')}")


@contextlib.contextmanager
def temporary_folder(parent):
    """Yields a new folder and removes it. A forked process that ends does not remove it, unlike TemporaryDirectory."""
    folder = tempfile.mkdtemp(dir=parent)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


class Workspace:
    """A folder with sample texts, a corpus, a model and every other kind of file; attempts work in copies of it."""

    def __init__(self, folder):
        import_all()
        self.folder = folder
        self.home = folder / "home"
        needed("sample home --pairs 300", folder)
        text = (self.home / "nmtalign.toml").rename(self.home / "workspace.toml").read_text()
        quick = "threads = 1\n[translate]\nmax_length_ratio = 1.0\nbeam = 1\n[score]\nbootstrap = 10\n"
        (self.home / "quick.toml").write_text(text + quick)
        for name in ("train", "dev", "test"):
            (self.home / f"{name}.tok.en").unlink()
            (self.home / f"{name}.tok.fr").unlink()
        for command in (
            "prep -q train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o data",
            "prep -q train.en train.fr --shortlist 200 -o other",
            f"{TRAIN} data -o model",
            "translate -q test.en --beam 2 --set max_length_ratio=1 -o out.fr",
            "link -q train.en train.fr -o aligner",
            "align -q test.en test.fr -m model -o alignments.h5",
        ):
            needed(command, self.home)
        shutil.copy(self.home / "aligner/lexicon.tsv", self.home / "lexicon.txt")

    @contextlib.contextmanager
    def copy(self, *names):
        """Yields a new folder with copies of some files and folders of the workspace."""
        with temporary_folder(self.folder) as scratch:
            for name in names:
                path = self.home / name
                if path.is_dir():
                    shutil.copytree(path, scratch / name)
                else:
                    shutil.copy(path, scratch / name)
            yield scratch


def limit_files(size):
    """Lets no file grow beyond `size` bytes: the system refuses further writes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
