"""`nmtalign info` about this machine."""

import json
import os
import sys

import pytest
from helpers.commands import call

from nmtalign.errors import ResourceError


def test_without_a_path_it_describes_the_machine_and_its_problems():
    text = call("info")
    for part in ["processor", "cores", "memory", "disk", "devices", "precision", "versions", "extras"]:
        assert f"{part}:\n" in text
    assert text.splitlines()[-1].startswith(("  ", "problems:"))
    facts = json.loads(call("info", "--format", "json"))
    assert facts["cores"]["present"] == os.cpu_count()
    assert 0 < facts["memory"]["free_gb"] <= facts["memory"]["total_gb"]
    assert isinstance(facts["problems"], list)


@pytest.mark.parametrize("written", ["text", "json"])
def test_what_makes_nmtalign_unusable_is_an_error(monkeypatch, written):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ResourceError, match="cannot run here: PyTorch cannot be loaded"):
        call("info", "--format", written)
