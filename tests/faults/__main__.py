"""`bin/test faults`: runs the campaigns and prints their results."""

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from faults import commands, environment, mutations, texts
from faults.campaign import Part, run_part
from faults.processes import Workspace, temporary_folder

CAMPAIGNS = {  # those with the cheapest attempts first: what they leave of their time is for the others
    "mutations": mutations,
    "texts": texts,
    "environment": environment,
    "concurrency": commands,
    "disks": commands,
    "kills": commands,
}

_work: list[tuple[Part, int]] = []  # the parts and their numbers of attempts; forked processes have it, too


def main():
    """Returns the exit code: 1 if a part has a failure."""
    parser = argparse.ArgumentParser(prog="bin/test faults", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="parts whose names begin so, such as 'kills: prep'")
    parser.add_argument("--attempts", type=int, metavar="N", help="attempts of each part")
    parser.add_argument("--quick", action="store_true", help="the few attempts of the tests")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="[1]")
    parser.add_argument("--attempt", type=int, metavar="I", help="only attempt number I of each part, again")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="minutes of the whole run [60]")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="[one per core]")
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    failed = 0
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with temporary_folder(memory) as folder:
        _work.extend(_parts(chosen, Workspace(folder)))
        deadline = time.monotonic() + 60 * chosen.minutes
        with ProcessPoolExecutor(chosen.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
            running = [pool.submit(_run, number, chosen, deadline) for number in range(len(_work))]
            for done in as_completed(running):
                result, seconds = done.result()
                failed += bool(result.failures)
                sys.stdout.write(f"{result.row()} {seconds:.1f} s\n")
                sys.stdout.flush()
    return int(failed > 0)


def _parts(chosen, workspace):
    names = tuple(chosen.only or CAMPAIGNS)
    wanted = dict.fromkeys(one for name, one in CAMPAIGNS.items() if any(each.startswith(name) for each in names))
    for part in (part for campaign in wanted for part in campaign.parts(workspace) if part.name.startswith(names)):
        if count := chosen.attempts or (part.quick if chosen.quick else part.full):
            yield part, count


def _run(number, chosen, deadline):
    """Runs a part; returns its result and the seconds. The parts that are left share the time that is left."""
    part, count = _work[number]
    began = time.monotonic()
    left = deadline - began
    numbers = range(count) if chosen.attempt is None else [chosen.attempt]
    result = run_part(part, chosen.seed, numbers, min(left, left * chosen.jobs / (len(_work) - number)))
    return result, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
