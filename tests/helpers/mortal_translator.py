"""A Translator whose process is killed once, in the middle of a run; and a program that runs an example with it.

`python mortal_translator.py ENGINE FOLDER EXAMPLE ARGUMENTS...` runs a script on a local cluster of two workers. Each
worker process that translates leaves a file with its number in FOLDER.
"""

import os
import runpy
import signal
import sys
import tempfile
from pathlib import Path

import nmtalign

FATAL_TEXT = "the fox sees a boat that kills ."


class MortalTranslator(nmtalign.Translator):
    """Ends its process with SIGKILL when it has translated FATAL_TEXT for the first time, before it returns it."""

    def translate(self, lines, **settings):
        result, folder = list(super().translate(lines, **settings)), Path(os.environ["WORKERS"])
        (folder / str(os.getpid())).touch()
        if FATAL_TEXT in lines:
            try:
                (folder / "killed").touch(exist_ok=False)
            except FileExistsError:
                return result
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def main(engine: str, folder: str, *arguments: str) -> None:
    """Runs an example, in which this class replaces Translator."""
    from helpers.mortal_translator import MortalTranslator as Imported  # workers cannot import it from __main__

    os.environ["WORKERS"] = folder
    nmtalign.Translator = Imported
    sys.argv = list(arguments)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as short:  # names of sockets are short
        if engine == "ray":
            import ray

            local = {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": short}
            ray.init(num_cpus=2, object_store_memory=100 << 20, **local)
        runpy.run_path(arguments[0], run_name="__main__")
        if engine == "ray":
            ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
