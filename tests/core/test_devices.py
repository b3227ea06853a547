"""What MKL is asked for, and what its answers mean."""

import json
import os
import subprocess
import sys

import pytest

from nmtalign.core import devices

AUTO, AVX, AVX2, AVX512, AVX512_E1, STRICT = 2, 9, 10, 12, 14, 0x10000


@pytest.mark.parametrize(
    ("mode", "branch", "reproducible"),
    [
        (AUTO | STRICT, AVX2, True),
        (AUTO | STRICT, AVX512, True),
        (AUTO | STRICT, AVX512_E1, True),
        (AUTO | STRICT, AVX, False),
        (AUTO | STRICT, 3, False),  # as on processors of AMD
        (AUTO, AVX512, False),
        (AVX2 | STRICT, 3, True),
        (AVX2, AVX2, False),
        (AVX | STRICT, AVX2, False),
    ],
)
def test_products_are_reproducible_where_the_strict_mode_has_an_effect(monkeypatch, mode, branch, reproducible):
    answers = {"mkl_serv_cbwr_get": lambda of: mode, "mkl_serv_cbwr_get_auto_branch": lambda: branch}
    monkeypatch.setattr(devices, "_mkl_function", lambda *names: answers[names[1]])
    assert devices.products_are_reproducible() is reproducible


def test_without_mkl_nothing_is_promised(monkeypatch):
    monkeypatch.setattr(devices, "_mkl_function", lambda *names: None)
    devices.make_products_reproducible()
    assert not devices.products_are_reproducible()


@pytest.mark.parametrize(("given", "expected"), [(None, "AUTO,STRICT"), ("COMPATIBLE", "COMPATIBLE")])
def test_the_command_line_asks_before_pytorch_is_imported(given, expected):
    code = """if True:
        import json, os, sys
        seen = []
        class Watch:
            def find_spec(self, name, path=None, target=None):
                if name in ("torch", "typer"):
                    seen.append((name, os.environ.get("MKL_CBWR")))
        sys.meta_path.insert(0, Watch())
        sys.argv = ["nmtalign", "info", "nowhere"]
        from nmtalign.cli.app import main
        try:
            main()
        except SystemExit:
            import torch
        print(json.dumps(seen))
    """
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    environment |= {} if given is None else {"MKL_CBWR": given}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert json.loads(result.stdout) == [["typer", expected], ["torch", expected]]
