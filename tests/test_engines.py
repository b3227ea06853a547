"""The examples for tables and for clusters are run: Ray, Spark and datasets with real workers, Slurm in a simulation.

In Ray and Spark one of the two workers is killed while it works. An engine that is not installed is skipped.
"""

import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import mortal_translator
from helpers.command_line import command, environment_with_nmtalign, run_nmtalign
from helpers.random_models import ENGLISH
from helpers.torchrun import torchrun

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parent.parent / "examples"
TESTS = Path(__file__).parent
ROWS = 600


def installed(*names: str):
    """Skips a test where a package is missing."""
    return pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in names), reason=f"needs {names}")


@pytest.fixture(scope="module")
def model(tmp_path_factory, random_model_directory) -> Path:
    return random_model_directory(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def rows(model, tmp_path_factory) -> list[dict]:
    """The rows of a table: ids, texts, another column, and what `nmtalign translate` prints for them."""
    folder, generator = tmp_path_factory.mktemp("texts"), random.Random(3)
    texts = [" ".join(generator.choices(ENGLISH, k=generator.randrange(8))) for _ in range(ROWS)]
    texts[ROWS // 2] = mortal_translator.FATAL_TEXT
    (folder / "in.en").write_text("".join(f"{line}\n" for line in texts))
    done = run_nmtalign("translate", "in.en", "--beam", 5, "-m", model, "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    translations = done.stdout.decode().splitlines()
    assert len(set(translations)) > 100
    return [
        {"id": number, "text": text, "kept": f"row {number}", "translation": translation}
        for number, (text, translation) in enumerate(zip(texts, translations, strict=True))
    ]


def with_keys(rows: list[dict], *keys: str) -> list[dict]:
    return [{key: row[key] for key in keys} for row in rows]


def run(*command: object, cwd: Path, **variables: object) -> str:
    """What a command prints to stdout; all its processes end with it."""
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environment["PATH"] = os.pathsep.join([environment["PATH"], str(Path(sys.executable).parent)])
    call, streams = [*map(str, command)], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(call, cwd=cwd, env=environment, **streams, text=True, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=270)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output[-5000:]
    return output


def run_with_a_death(engine: str, example: str, model: Path, folder: Path, **variables: object) -> list[dict]:
    """The rows that an example makes of in.parquet, ordered by id, although one of its two workers is killed."""
    from pyarrow import parquet

    (workers := folder / "workers").mkdir()
    program = sys.executable, mortal_translator.__file__, engine, workers, EXAMPLES / example
    run(*program, model, "in.parquet", "out", cwd=folder, **variables)
    names = {path.name for path in workers.iterdir()}
    assert "killed" in names
    assert len(names) >= 3  # the killed worker, and others that repeated its work
    return sorted(parquet.read_table(folder / "out").to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def table(rows, tmp_path) -> Path:
    """The folder of in.parquet and in.jsonl, without what is to be computed."""
    given = with_keys(rows, "id", "text", "kept")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(given), tmp_path / "in.parquet")
    return tmp_path


@installed("ray", "pyarrow")
def test_ray_translate(model, rows, table) -> None:
    quiet = {"RAY_USAGE_STATS_ENABLED": 0, "RAY_AUTH_MODE": "disabled"}
    assert run_with_a_death("ray", "ray_translate.py", model, table, **quiet) == rows


@installed("pyspark", "pandas", "pyarrow")
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_spark_translate(model, rows, table) -> None:
    import pyspark

    # Executors write their logs below SPARK_HOME.
    (home := table / "spark").mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    local = "--conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 --conf spark.ui.enabled=false"
    found = run_with_a_death(
        *("spark", "spark_translate.py", model, table),
        SPARK_HOME=home,
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_SUBMIT_ARGS=f"--master local-cluster[2,1,1024] {local} pyspark-shell",
    )
    assert found == rows


@installed("datasets")
def test_datasets_map(model, rows, table) -> None:
    arguments = model, "in.jsonl", "out.jsonl"
    offline = {"HF_HOME": table / "cache", "HF_HUB_OFFLINE": 1, "HF_DATASETS_OFFLINE": 1}
    rows = [{"date": "2024-05-01", **row} if row["id"] % 2 else row for row in rows]
    without = [{key: value for key, value in row.items() if key != "translation"} for row in rows]
    (table / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in without))
    run(sys.executable, EXAMPLES / "datasets_map.py", *arguments, 2, cwd=table, **offline)
    found = [json.loads(line) for line in (table / "out.jsonl").read_text().splitlines()]
    assert found == rows


def test_slurm_translate(model, rows, table) -> None:
    path = environment_with_nmtalign(table)["PATH"]

    def submit(number: int, source: str, output: str, *options: str) -> None:
        """What `sbatch --array=NUMBER` does with the script."""
        command = "bash", EXAMPLES / "slurm-translate.sh", 3, model, source, output, "--beam", 5, *options
        run(*command, cwd=table, PATH=path, SLURM_ARRAY_TASK_ID=number, SLURM_CPUS_PER_TASK=1)

    (table / "in.en").write_text("".join(f"{row['text']}\n" for row in rows))
    for number in (3, 1, 2):
        submit(number, "in.en", "out.fr")
    parts = sorted(table.glob("out.fr.part-*"))
    expected = "".join(f"{row['translation']}\n" for row in rows)
    assert (len(parts), "".join(part.read_text() for part in parts)) == (3, expected)
    submit(2, "in.en", "out.fr")  # which is done
    json_lines = "--set", "input_format=json", "--format", "json"
    submit(2, "in.jsonl", "out.jsonl", *json_lines)
    found = [json.loads(line) for line in (table / "out.jsonl.part-00002").read_text().splitlines()]
    keys = "id", "kept", "translation"
    assert with_keys(found, *keys) == with_keys(rows[ROWS // 3 : 2 * ROWS // 3], *keys)


def test_slurm_train(rows, tmp_path) -> None:
    """Two machines are two launchers on this one, which meet at an address of the loopback network."""
    for side, key in (("en", "text"), ("fr", "translation")):
        (tmp_path / f"train.{side}").write_text("".join(f"{row[key] or '.'}\n" for row in rows))
    pair = "train.en", "train.fr"
    assert run_nmtalign("prep", *pair, "--dev", *pair, "-o", "data", "-q", cwd=tmp_path).returncode == 0
    programs = {
        "scontrol": '[ "$*" = "show hostnames nodes[1-2]" ] && printf "127.0.0.1\\n127.0.0.1\\n"',
        "srun": '"$@" & first=$!; "$@" & wait "$first" && wait $!',
    }
    for name, code in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{code}\n")
        (tmp_path / name).chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    job = {"SLURM_JOB_ID": 7, "SLURM_JOB_NODELIST": "nodes[1-2]", "SLURM_NNODES": 2, "SLURM_CPUS_PER_TASK": 1}
    quick = "--preset", "tiny", "--epochs", 0, "--max-updates", 3, "--device", "cpu", "--set", "precision=fp32"
    script = "bash", EXAMPLES / "slurm-train.sh", "data"
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]  # on which nobody listens afterwards
    output = run(*script, "m", *quick, cwd=tmp_path, PATH=path, PORT=port, **job)
    assert "2 processes" in output
    ranks, said = command("train", "data", "-o", "one", *quick), tmp_path / "said"
    assert torchrun("--no-python", *ranks, folder=tmp_path, output=said).wait(250) == 0, said.read_text()
    assert (tmp_path / "m" / "last.safetensors").read_bytes() == (tmp_path / "one" / "last.safetensors").read_bytes()
