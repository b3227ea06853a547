"""A model directory with random weights, and a lexicon for it. They are measured if no model and text are given."""

import numpy as np
import torch
from helpers import random_models

from bench.naive import NaiveLoop
from bench.workload import FIRST_WORD
from nmtalign.files import atomic_text
from nmtalign.text.tokenizer import Tokenizers

SPREAD = 3.0  # standard deviation of the logits: some words are likely, as in a trained model, and few are even
ENTRIES = 4  # of the lexicon, per source word


def write_model(folder, texts, seed=1):
    """Writes a model directory with the size and vocabularies of the texts, whose words are between spaces."""
    languages, size = ("en", "fr"), texts.size
    given = texts.words, Tokenizers.spaced(*languages), languages, size.name, (size.model, size.training)
    return random_models.write_model(folder, *given, spread_logits, seed)


def spread_logits(model):
    """Scales the output weights until the logits have the same spread as in a trained model.

    Newly initialised weights give all words nearly the same probability, so that most of the best words would tie in
    bf16.
    """
    if model.config.architecture == "transformer":  # its last norm gives the softmax numbers of about 1
        with torch.no_grad():
            model.readout.output_weight.mul_(SPREAD / float(model.readout.output_weight.norm(dim=1).mean()))
        return
    loop = NaiveLoop(model.config, dict(model.named_parameters()))
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(FIRST_WORD, model.config.source_vocabulary_size, (4, 10), generator=generator)
    words = torch.randint(FIRST_WORD, model.config.target_vocabulary_size, (3, 4), generator=generator)
    with torch.inference_mode():
        memory = loop.remember(source, torch.ones_like(source, dtype=torch.bool))
        state, logits = loop.step(memory, loop.start(memory), None)
        for previous in words:
            state, logits = loop.step(memory, state, previous)
        model.readout.output_weight.mul_(SPREAD / float(logits.std()))


def write_lexicon(path, texts, frequent, seed=0):
    """Writes a lexicon with `frequent` different target words, none among the `frequent` most frequent words.

    Together with the most frequent words, any batch of more than a few sentences has almost 2 * `frequent` candidates.
    Returns the number of target words in the lexicon.
    """
    source, target = texts.words
    named = target[frequent : 2 * frequent]
    chosen = np.random.default_rng(seed).integers(0, len(named), (len(source), ENTRIES))
    with atomic_text(path) as stream:
        for word, places in zip(source, chosen, strict=True):
            stream.writelines(f"{word}\t{named[place]}\t{1 / ENTRIES}\n" for place in np.unique(places))
    return len(named)
