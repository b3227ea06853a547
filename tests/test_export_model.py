"""A model is exported completely, exactly or in eight bits, without the files of its training, or not at all."""

import json
import os
import shutil
import sys

import pytest
import torch
from helpers.commands import run
from helpers.random_models import ENGLISH, FRENCH

from nmtalign.api import describe, export
from nmtalign.core.model import make_batch
from nmtalign.errors import FormatError, UsageError
from nmtalign.model_directory import export_model, load_model, load_tensors, save_tensors, write_copy
from nmtalign.settings.presets import SYSTEMS
from nmtalign.translating.translator import Translator


@pytest.fixture
def model(tmp_path, random_model_directory):
    """A model directory with everything that a training, its user and other programs leave there."""
    folder = random_model_directory(tmp_path / "made")
    random_model_directory(tmp_path / "other", FRENCH, ENGLISH)
    save_tensors(folder / "best.safetensors", *weights(folder, more="metadata"))
    for name in ("last", "training_state", "training_state.previous"):
        save_tensors(folder / f"{name}.safetensors", {"a": torch.ones(3)}, {})
    (folder / "train.jsonl").write_text("{}\n")
    (folder / "confidence.json").write_text("{}")
    (folder / "README.md").write_text("My model.\n")
    (folder / ".best.safetensors.1.partial").write_text("")
    (folder / "corpus.h5").write_text("")
    (folder / "translations").mkdir()
    (folder / "translations/a.txt").write_text("")
    (tmp_path / "secret").write_text("")
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    return folder


def weights(folder, **more):
    """The best weights, and their metadata without those that describe the file."""
    tensors, metadata = load_tensors(folder / "best.safetensors")
    return tensors, {**{name: metadata[name] for name in metadata.keys() & {"update", "more"}}, **more}


KEPT = ["README.md", "best.safetensors", "config.json", "confidence.json"]
KEPT += ["source.vocabulary.txt", "target.vocabulary.txt", "tokenizer.json"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def translations(folder):
    lines = ["the fox sees a boat .", "a red fox", "boat", "sees the"]
    translator = Translator.load(folder, beam=3, device="cpu", threads=1)
    return [(t.text, t.log_prob, t.alignment.tolist()) for t in translator.translate(lines)]


def test_what_a_killed_export_left_is_removed_by_the_next_one(model, tmp_path):
    def killed(loaded, new, weights):
        write_copy(loaded, new, weights)
        shutil.copytree(tmp_path / "new", tmp_path / "left")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_model(model, tmp_path / "new/slim", write=killed)
    assert not (tmp_path / "new").exists()
    (tmp_path / "left").rename(tmp_path / "new")
    assert list((tmp_path / "new").rglob("best.safetensors"))
    export(model, tmp_path / "new/slim")
    assert names(tmp_path / "new") == ["slim"]


def test_an_exact_copy(model, tmp_path):
    export(model, tmp_path / "new/slim")
    assert names(tmp_path / "new") == ["slim"]
    assert names(tmp_path / "new/slim") == sorted(KEPT)
    slim = tmp_path / "new/slim"
    assert (slim / "best.safetensors").read_bytes() == (model / "best.safetensors").read_bytes()
    settings = json.loads((slim / "config.json").read_text())
    assert settings.pop("exported") == "fp32"
    assert settings == json.loads((model / "config.json").read_text())
    assert translations(slim) == translations(model)
    facts = describe(tmp_path / "new/slim")
    assert (facts["weights"], facts["training_state"]) == ("fp32", "none; it was exported")
    assert describe(model)["training_state"] == "kept"
    assert describe(tmp_path / "other/model")["training_state"] == "none"


def test_a_copy_in_eight_bits(model, tmp_path):
    export(model, tmp_path / "slim", weights="int8")
    exact, rough = (load_model(folder, device="cpu") for folder in (model, tmp_path / "slim"))
    assert names(tmp_path / "slim") == sorted(KEPT)
    assert exact.hash != rough.hash
    assert weights(tmp_path / "slim")[1] == weights(model)[1] == {"more": "metadata"}
    for (name, tensor), other in zip(exact.model.state_dict().items(), rough.model.state_dict().values(), strict=True):
        near = tensor.abs().amax(-1, keepdim=True) / 253 if tensor.dim() > 1 else 0.0
        assert bool(((tensor - other).abs() <= near).all()), name
    assert describe(tmp_path / "slim")["weights"] == "int8"
    assert describe(tmp_path / "slim")["parameters"] == describe(model)["files"]["best.safetensors"]["parameters"]
    assert [len(found) for found in translations(tmp_path / "slim")] == [3] * 4
    export(tmp_path / "slim", tmp_path / "again", weights="fp32")
    assert all(map(torch.equal, *(load_model(tmp_path / n).model.state_dict().values() for n in ("slim", "again"))))


@pytest.mark.parametrize("name", ["rnnsearch", "gnmt", "transformer", "marginal"])
def test_every_system_in_eight_bits_gives_nearly_the_same_log_probabilities(random_model_directory, tmp_path, name):
    settings = {"embedding": 32, "hidden": 64, "attention_hidden": 32, "maxout": 32}
    settings |= SYSTEMS.get(name, {"attention_kind": name})
    folder = random_model_directory(tmp_path, adjust=lambda model: None, **settings)
    export(folder, tmp_path / "slim", weights="int8")
    exact, rough = (load_model(path, device="cpu") for path in (folder, tmp_path / "slim"))
    stored = [path.stat().st_size for path in (exact.weights_file, rough.weights_file)]
    ids = [exact.ids(ENGLISH * 3, [*FRENCH, "Zoe"] * 3), exact.ids(["a", "Zoe"], ["Zoe", "un"])]
    copies = [row[2] for row in ids] if exact.model.config.copy else None
    batch = make_batch([row[:2] for row in ids], copies=copies)
    found, near = (each.model.force(*batch.inputs()).log_probs[batch.target_mask] for each in (exact, rough))
    assert stored[1] < 0.35 * stored[0]
    assert 0 < (near - found).norm() < 0.03 * (found - found.mean()).norm()


def test_the_mean_of_several_weights(model, tmp_path):
    parts = [weights(model)[0]]
    for number in range(2):
        torch.manual_seed(number)
        parts.append({name: torch.randn_like(tensor) for name, tensor in parts[0].items()})
    save_tensors(model / "last.safetensors", parts[1], {})
    shutil.copytree(model, tmp_path / "second", ignore=shutil.ignore_patterns("pipe"))
    save_tensors(tmp_path / "second/best.safetensors", parts[2], {})
    export(model, tmp_path / "mean", average=[model / "last.safetensors", tmp_path / "second"])
    for name, tensor in weights(tmp_path / "mean")[0].items():
        assert torch.equal(tensor, (sum(part[name].double() for part in parts) / 3).float())
    facts = describe(tmp_path / "mean")["files"]["best.safetensors"]
    assert facts["averaged"] == 3
    assert "update" not in facts
    assert len(translations(tmp_path / "mean")) == 4
    done = run(tmp_path, "export", "made/model", "-o", "two", "--average", "second")
    assert done.returncode == 0, done.stderr
    for other in (model / "training_state.safetensors", tmp_path / "other/model"):
        with pytest.raises(UsageError, match=r"is of another model than .*, so there is no mean of their weights"):
            export(model, tmp_path / "none", average=[other])


def test_what_exists_is_replaced_only_if_nothing_is_lost(model, tmp_path):
    slim = tmp_path / "slim"
    slim.mkdir()
    export(model, slim)
    (slim / "mine").write_text("")
    export(model, slim)  # the same again
    assert "mine" in names(slim)
    with pytest.raises(UsageError, match=r"slim: contains another exported model, .* or --force to replace it"):
        export(model, slim, weights="int8")
    export(model, slim, weights="int8", force=True)
    assert "mine" not in names(slim)
    before = names(model)
    for folder in (model, tmp_path / "other", tmp_path):
        with pytest.raises(UsageError, match="contains other files, which would be lost; give a new folder with -o"):
            export(model, folder, force=True)
    assert names(model) == before
    with pytest.raises(UsageError, match="secret: is a file; give the name of a folder with -o"):
        export(model, tmp_path / "secret", force=True)
    (tmp_path / "link").symlink_to(tmp_path / "further")
    export(model, tmp_path / "link")
    assert names(tmp_path / "further") == names(slim)
    assert not [name for name in names(tmp_path) if name.endswith(".partial")]


def test_weights_that_are_not_finite_have_no_scale(model, tmp_path):
    tensors = {name: tensor.clone() for name, tensor in load_tensors(model / "best.safetensors")[0].items()}
    tensors["readout.output_weight"][3, 2] = torch.nan
    save_tensors(model / "best.safetensors", tensors, {})
    with pytest.raises(FormatError, match=r"readout.output_weight has a value that is not finite; export it with fp32"):
        export(model, tmp_path / "slim", weights="int8")
    export(model, tmp_path / "slim")


def test_a_missing_program_is_named_with_what_to_install(random_model_directory, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    folder = random_model_directory(tmp_path, **SYSTEMS["transformer"])
    with pytest.raises(UsageError, match=r'needs CTranslate2: pip install "nmtalign\[ctranslate2\]"'):
        export(folder, tmp_path / "ct2", format="ctranslate2")
    assert names(tmp_path) == ["corpus", "model"]
