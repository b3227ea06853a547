"""torchrun in a fork of the server that saves the imports."""

import os
import subprocess

from helpers.command_line import CODE, command

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_LOGS": "-distributed"}
# Its ranks run the code of a separate variable.
TORCHRUN = f"""
import os, sys, traceback
from torch.distributed.run import main
os.environ["{CODE}"] = os.environ.pop("CODE_OF_RANKS")
code = 1
try:
    main(["--standalone", *sys.argv[1:]])
    code = 0
except BaseException:
    traceback.print_exc()
    sys.stderr.flush()
os._exit(code)
"""


def torchrun(*program, folder, output, processes=2, code=""):
    """`torchrun PROGRAM` as a process in a folder, which writes to a file; ranks that are forks first run `code`."""
    call = command(f"--nproc-per-node={processes}", *program)
    environment = {**ENVIRONMENT, CODE: TORCHRUN, "CODE_OF_RANKS": code}
    with output.open("a") as stream:  # several processes append to it
        return subprocess.Popen(call, cwd=folder, env=environment, stdout=stream, stderr=stream)
