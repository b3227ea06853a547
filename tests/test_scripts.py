"""bin/demo, as a newcomer runs it, from another folder."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


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
