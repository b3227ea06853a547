"""`nmtalign doctor` as a user runs it."""

import json
import os
import sys

import pytest

from nmtalign.cli.doctor import doctor
from nmtalign.errors import ResourceError


def test_the_command_prints_facts_and_problems(nmtalign):
    result = nmtalign("doctor")
    text = result.stdout.decode()
    assert result.stderr == b""
    for part in (
        "processor:",
        "cores:",
        "memory:",
        "disk:",
        "devices:",
        "precision:",
        "versions:",
        "extras:",
    ):
        assert f"{part}\n" in text
    assert text.splitlines()[-1].startswith(("  ", "problems:"))


def test_json_has_numbers(nmtalign):
    facts = json.loads(nmtalign("doctor", "--format", "json").stdout)
    assert facts["cores"]["present"] == os.cpu_count()
    assert 0 < facts["memory"]["free_gb"] <= facts["memory"]["total_gb"]
    assert isinstance(facts["problems"], list)


@pytest.mark.parametrize("written", ["text", "json"])
def test_what_makes_nmtalign_unusable_is_an_error(monkeypatch, capsys, written):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ResourceError, match="cannot run here: PyTorch cannot be loaded"):
        doctor(written)
    assert "processor" in capsys.readouterr().out
