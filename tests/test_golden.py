"""Files of earlier versions are read as they were: `golden/N.tar.xz` is from a version with the alignment format N.

The archive contains a prepared corpus, a model with its training state, the model in eight bits, an alignment file, an
aligner of `nmtalign link`, three pairs of text, and what that version printed: the links (`links.txt`) and the
log-probabilities (`scores.txt`). To add files for a new format, run on 40 pairs of the sample corpus: prep, train with
the options `SIZES`, align, translate --target, export --weights int8 and link.
"""

import json
import re
import tarfile
from pathlib import Path

import pytest

from nmtalign.alignment.alignment_file import FORMAT_VERSION, AlignmentFile
from nmtalign.data.corpus import Corpus

GOLDEN = Path(__file__).parent / "golden"
SIZES = "--preset tiny --max-updates 60 --set validate_every=30 --set hidden=8 --set embedding=4 "
SIZES += "--set attention_hidden=8 --set maxout=4"


@pytest.fixture(params=[FORMAT_VERSION], autouse=True)
def version(request, tmp_path):
    """The number of a format; its files are in tmp_path."""
    with tarfile.open(GOLDEN / f"{request.param}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        archive.extractall(tmp_path)  # noqa: S202 (our own files)
    return request.param


def numbers(lines):
    return [float(line) for line in lines.split()]


def test_alignments_are_read(version, tmp_path):
    with AlignmentFile(tmp_path / "alignments.h5") as file:
        assert file.info()["attributes"]["format_version"] == version
        expected = (tmp_path / "links.txt").read_text().splitlines()
        links = [" ".join(f"{i}-{j}" for i, j in record.links()) for record in file]
        assert links == expected
        text = re.sub(r"([.?])", r" \1", (tmp_path / "text.en").read_text())
        assert [" ".join(record.source) for record in file] == text.splitlines()
        assert all(abs(record.weights.sum(1) - 1).max() < 0.01 for record in file)


@pytest.mark.parametrize(("model", "error"), [("model", {"abs": 2e-3}), ("model-int8", {"rel": 0.02})])
def test_models_give_the_same_scores(tmp_path, nmtalign, model, error):
    printed = nmtalign("translate", "text.en", "--target", "text.fr", "-m", model).stdout
    assert numbers(printed) == pytest.approx(numbers((tmp_path / "scores.txt").read_text()), **error)


def test_models_corpora_and_aligners_are_used(tmp_path, nmtalign):
    by_model, by_aligner = (
        nmtalign("align", "text.en", "text.fr", "-m", name, "--pharaoh").stdout.splitlines()
        for name in ("model/best.safetensors", "aligner")
    )
    assert len(by_model) == len(by_aligner) == 3
    assert all(by_aligner)
    corpus = Corpus.open(tmp_path / "data")
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 39, "dev": 6}
    assert corpus.splits["dev"].source.text(1)


def test_trainings_resume(tmp_path, nmtalign):
    nmtalign("train", "data", "-o", "model", *SIZES.split(), "--max-updates", "62")
    updates = [json.loads(line)["update"] for line in (tmp_path / "model/train.jsonl").read_text().splitlines()]
    assert updates[-1] == 62
    assert 60 in updates  # of the version before
