"""The environment of the tests, their order, and which of them need a GPU; `helpers/fixtures.py` has their fixtures."""

import gc
import os

import pytest

# Before PyTorch is imported. Many small models: a second thread would only wait for the first.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # as the command line does, before the first product
for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
    os.environ.pop(name, None)  # with which typer would colour what it does not print to a terminal

SLOWEST = ("test_readme.py", "test_examples.py")


def pytest_configure(config):
    """Loads the fixtures, but not in the process that only hands out tests to others: it needs no PyTorch."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("helpers.fixtures")


def pytest_collection_modifyitems(items):
    """The files that take longest come first, so that workers side by side end at about the same time."""
    items.sort(key=lambda item: item.path.name not in SLOWEST)


def pytest_collection_finish():
    """The modules stay until the end: the garbage collector, which took a tenth of the time, looks at them no more."""
    gc.freeze()


def pytest_runtest_setup(item):
    """Tests that need a GPU are skipped without one."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
        import torch._dynamo

        # An earlier test may have chosen TF32, and in both precisions some functions have more than eight variants.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch._dynamo.config.recompile_limit = 64
