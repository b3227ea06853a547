"""`bin/test faults`: runs the campaigns, prints their results, and writes them into README.md."""

import argparse
import os
import sys
import time
from pathlib import Path

from faults import concurrency, disks, environment, fuzzing, kills, mutations, texts
from faults.campaign import run_part, write_table
from faults.processes import Workspace, temporary_folder

CAMPAIGNS = {
    "kills": kills,
    "disks": disks,
    "mutations": mutations,
    "fuzzing": fuzzing,
    "texts": texts,
    "environment": environment,
    "concurrency": concurrency,
}


def main() -> int:
    """Returns the exit code: 1 if a part has a failure."""
    parser = argparse.ArgumentParser(prog="bin/test faults", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="parts whose names begin so, such as 'kills: prep'")
    parser.add_argument("--attempts", type=int, metavar="N", help="attempts of each part [as in README.md]")
    parser.add_argument("--quick", action="store_true", help="the few attempts of the tests")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="[1]")
    parser.add_argument("--attempt", type=int, metavar="I", help="only attempt number I of each part, again")
    parser.add_argument("--minutes", type=float, default=4.0, metavar="M", help="most minutes of a part [4]")
    parser.add_argument("--no-table", action="store_true", help="do not write the results into README.md")
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    names = tuple(chosen.only or CAMPAIGNS)
    failed = 0
    with temporary_folder(_memory()) as folder:
        workspace = Workspace(folder)
        wanted = [campaign for name, campaign in CAMPAIGNS.items() if any(one.startswith(name) for one in names)]
        for part in (part for campaign in wanted for part in campaign.parts(workspace) if part.name.startswith(names)):
            count = chosen.attempts or (part.quick if chosen.quick else part.full)
            if not count:
                continue
            began = time.monotonic()
            numbers = range(count) if chosen.attempt is None else [chosen.attempt]
            result = run_part(part, chosen.seed, numbers, 60 * chosen.minutes)
            failed += bool(result.failures)
            sys.stdout.write(f"{result.row()} {time.monotonic() - began:.1f} s\n")
            sys.stdout.flush()
            if not (chosen.no_table or chosen.quick or chosen.attempt is not None):
                write_table(f"--attempts {count} --minutes {chosen.minutes:g} --seed {chosen.seed}", [result])
    return int(failed > 0)


def _memory() -> str | None:
    """A folder in memory, where the many small files cost least, or None."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


if __name__ == "__main__":
    sys.exit(main())
