"""Unusual environments: variables, folders, limits, streams and file names.

A command starts from the beginning, as `python -m nmtalign`, because much of this is read only then. It prints what it
prints in a usual environment, or refuses in one line with a documented exit code.
"""

import os
from functools import cache, partial

from faults.campaign import Part
from faults.processes import run_started

_FILE_NAMES = (b"a'b", b'a"b', b"a\nb", b"a\xff", b"a \x1b[2J", b"-a", b"$(id)", b"[bold]", "é".encode())
_COMMANDS = (
    "translate -q {0}/test.en -m {0}/model --beam 1 --set max_length_ratio=1",
    "align -q {0}/test.en {0}/test.fr -m {0}/model --pharaoh",
    "score -q {0}/out.fr -r {0}/test.fr --metrics bleu --no-confidence",
    "export {0}/alignments.h5",
    "info {0}/model",
    "info {0}/data",
    "aer {0}/test.align {0}/test.align",
)  # fmt: skip
# Shell commands around the command, and the exit codes that are right.
_ENVIRONMENTS = {
    "no HOME": ("exec env -u HOME {}", {0}),
    "HOME that cannot be made": ("HOME=/proc/none exec {}", {0}),
    "TERM=dumb": ("TERM=dumb exec {}", {0}),
    "NO_COLOR": ("NO_COLOR=1 exec {}", {0}),
    "C locale": ("LC_ALL=C LANG=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 exec {}", {0}),
    "no variables": ('exec env -i PATH="$PATH" PYTHONPATH="$PYTHONPATH" {}', {0}),
    "a deleted folder": ("mkdir gone; cd gone; rmdir ../gone; exec {}", {5}),
    "a folder that cannot be written": ("cd /proc; exec {}", {0}),
    "umask 077": ("umask 077; exec {}", {0}),
    "64 open files": ("ulimit -n 64; exec {}", {0, 5}),
    "16 open files": ("ulimit -n 16; exec {}", {0, 5}),
    "address space of 400 MB": ("ulimit -v 400000; exec {}", {0, 5}),
    "address space of 1 GB": ("ulimit -v 1000000; exec {}", {0, 5}),
    "address space of 1.4 GB": ("ulimit -v 1400000; exec {}", {0, 5}),
    "closed stdin": ("exec {} <&-", {0}),
    "closed stdout": ("exec {} >&-", {5}),
    "closed stderr": ("exec {} 2>&-", {0}),
    "closed streams": ("exec {} <&- >&- 2>&-", {5}),
    "a full stdout": ("exec {} >/dev/full", {5}),
    "a full stderr": ("exec {} 2>/dev/full", {0}),
    "one core": ("exec taskset -c 0 {}", {0}),
}


def parts(workspace):
    """Environments, file names, and paths."""
    for name, case in _ENVIRONMENTS.items():
        yield Part(f"environment: {name}", partial(_attempt, workspace, *case), full=4, quick=int(name == "C locale"))
    yield Part("environment: file names", partial(_file_names, workspace), full=20, quick=0)
    yield Part("environment: a path of 3,500 bytes", partial(_long_path, workspace), full=5, quick=0)


def _run(arguments, cwd, shell="exec {}"):
    return run_started(arguments, shell, cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"})


@cache
def _usual(workspace, command):
    """What a command prints in a usual environment."""
    return _run(command.format(workspace.home).split(), workspace.folder).out


def _attempt(workspace, shell, codes, chance):
    command = chance.choice(_COMMANDS)
    with workspace.copy() as folder:
        ended = _run(command.format(workspace.home).split(), folder, shell)
    if fault := ended.fault(codes) if "2>" not in shell else "" if ended.code in codes else f"exit code {ended.code}":
        return f"{command}: {fault}"
    if ended.code == 0 and ended.out != _usual(workspace, command):
        return f"{command}: printed something else"
    return ""


def _named(workspace, make, chance):
    """Translates a file with this path to one beside it."""
    with workspace.copy() as folder:
        path = make(folder)
        path.write_bytes((workspace.home / "test.en").read_bytes())
        output = path.with_name(f"{path.name}.out")
        model = ["-m", str(workspace.home / "model"), "--beam", "1", "--set", "max_length_ratio=1"]
        ended = _run(["translate", *model, "-o", str(output), str(path)], folder)
        if fault := ended.fault({0}):
            return fault
        same = output.read_bytes() == _usual(workspace, _COMMANDS[0])
        missing = _run(["translate", *model, str(path.with_name(f"{path.name}x"))], folder)
        return missing.fault({3}) if same else "the translation differs"


def _file_names(workspace, chance):
    name = os.fsdecode(chance.choice(_FILE_NAMES) + b".en")
    return _named(workspace, lambda folder: folder / name, chance)


def _long_path(workspace, chance):
    def make(folder):
        deep = folder.joinpath(*["x" * 200] * 17)
        deep.mkdir(parents=True)
        return deep / "a.en"

    return _named(workspace, make, chance)
