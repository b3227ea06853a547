"""Models with random weights, and words for them."""

import json
from types import SimpleNamespace

import torch

from nmtalign.core.model import TranslationModel
from nmtalign.files import sha256_of
from nmtalign.model_directory import BEST, save_tensors
from nmtalign.text.tokenizer import EOS, UNK, Vocabulary
from nmtalign.training.checkpoints import create_run

ENGLISH = ["the", "fox", "sees", "a", "red", "boat", "."]
FRENCH = ["le", "renard", "voit", "un", "bateau", "rouge", "."]


def disturb(model):
    """Weights that are large enough for different translations of several words."""
    for parameter in model.parameters():
        parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    model.readout.output_bias[0] -= 6  # words rather than none


def write_model(folder, words, tokenizers, languages, preset, configs, adjust, seed):
    """Makes FOLDER/model with the words of both sides and random weights; `adjust` may change the weights."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for side, own in zip(("source", "target"), words, strict=True):
        Vocabulary([EOS, UNK, *own]).save(corpus / f"{side}.vocabulary.txt")
    tokenizers.save(corpus)
    hashes = json.dumps({path.name: sha256_of(path) for path in corpus.iterdir()})
    facts = {"settings": {}, "hash": "0" * 64, "attributes": {"sha256": hashes}}
    sides = dict(zip(("source_language", "target_language"), languages, strict=True))
    prepared = SimpleNamespace(folder=corpus, tokenizers=tokenizers, **facts, **sides)
    create_run(folder / "model", prepared, preset, *configs)
    torch.manual_seed(seed)
    model = TranslationModel(configs[0])
    with torch.no_grad():
        adjust(model)
    save_tensors(folder / "model" / BEST, model.state_dict(), {})
    return folder / "model"
