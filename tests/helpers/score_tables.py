"""Scorers for tests of search: tables of probabilities, and small models."""

import itertools
import re
from functools import partial

import numpy as np
import torch

from nmtalign.core.inference import Inference
from nmtalign.core.model import TranslationModel, make_batch, make_source
from nmtalign.search.beam_search import BeamSearch, Choice, ModelSession, Scoring, Session, Sources
from nmtalign.search.candidates import Candidates
from nmtalign.search.phrases import Phrases, PhraseSearch, RequiredPhrase
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.presets import SYSTEMS
from nmtalign.settings.training_settings import ModelConfig

WORDS = 5
TRANSFORMER = {**SYSTEMS["transformer"], "embedding": 8, "hidden": 12, "layers": 2, "heads": 2, "spread": 1.0}
SENTENCES = [[2, 3], [4], [8, 7, 6, 5], [], [3, 3, 3], [2, 8]]
# What a copying model copies from each place of the sentences: a target word, or a place of the source (from 5).
COPIES = dict(zip(map(tuple, SENTENCES), ([5, 3], [4], [5, 2, 7, 2], [], [5, 5, 5], [2, 2]), strict=True))


class TensorSession(Session):
    """Gives the log-probabilities `values`."""

    shape = None  # set for each object

    def __init__(self, values=None):
        self.device = torch.device("cpu")
        if values is not None:
            self.show(values)

    def show(self, values):
        self.values, self.shape = values, tuple(values.shape)

    def step(self, choice):
        raise NotImplementedError

    def log_probs(self, rows):
        return self.values[rows].clone()


class TableScorer:
    """Probabilities and weights from random tables [source's first word, step, previous word]."""

    def __init__(self, table):
        self.table = table.log_softmax(-1) if table.dim() == 4 else table.log_softmax(-1)[None]
        self.steps = 0
        generator = torch.Generator().manual_seed(7)
        self.read = torch.randn(*self.table.shape[1:3], 12, generator=generator) * 2

    @classmethod
    def random(cls, seed, spread=2.0, words=WORDS, steps=16):
        generator = torch.Generator().manual_seed(seed)
        return cls(torch.randn(9, steps, words, words, generator=generator, dtype=torch.float64) * spread)

    @classmethod
    def wide(cls, seed, words, steps=10):
        """Tables of many words in float32: 5 sources and 5 kinds of previous words, in which `</s>` comes soon."""
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(5, steps, 5, words, generator=generator) * 3
        table[..., 0] += 6
        return cls(table)

    def __call__(self, sources):
        return TableSession(self, sources.ids[:, 0] % len(self.table), sources.mask, sources.candidates)


class WatchedScorer:
    """Calls `watch(ids)` before it starts another scorer's session."""

    def __init__(self, scorer, watch):
        self.scorer, self.watch = scorer, watch

    def __call__(self, sources):
        self.watch(sources.ids)
        return self.scorer(sources)


class TableSession(TensorSession):
    def __init__(self, scorer, tables, mask, candidates):
        super().__init__()
        self.scorer, self.tables, self.mask, self.candidates = scorer, tables, mask, candidates
        self.allowed = None if candidates is None else torch.from_numpy(candidates.allowed)
        self.place, self.last = 0, torch.zeros(len(mask), dtype=torch.long)

    def step(self, choice):
        self.scorer.steps += 1
        if choice is not None:
            each = len(self.last) // len(self.mask)
            kept = torch.arange(len(self.mask)) if choice.sentences is None else choice.sentences
            # No row continues a row of another sentence.
            assert torch.equal(choice.rows // each, kept.repeat_interleave(len(choice.rows) // len(kept)))
            if choice.sentences is not None:
                self.tables, self.mask = self.tables[choice.sentences], self.mask[choice.sentences]
                self.allowed = None if self.allowed is None else self.allowed[choice.sentences]
            assert len(choice.rows) == len(choice.words)
            assert len(choice.rows) % len(self.mask) == 0
            assert choice.words.min() >= 0
            self.last = choice.words % self.scorer.table.shape[2]
        each = len(self.last) // len(self.mask)
        log_probs = self.scorer.table[self.tables.repeat_interleave(each), self.place, self.last]
        if self.candidates is not None:
            log_probs = log_probs[:, torch.from_numpy(self.candidates.words)]
            log_probs = log_probs.masked_fill(~self.allowed.repeat_interleave(each, 0), -torch.inf).log_softmax(-1)
        weights = self.scorer.read[self.place, self.last, : self.mask.shape[1]]
        self.weights = weights.masked_fill(~self.mask.repeat_interleave(each, 0), -torch.inf).softmax(-1)
        self.place += 1
        self.show(log_probs)


def small_model(seed=0, attention="additive", spread=3.0, **changes):
    torch.manual_seed(seed)
    sizes = {"source_vocabulary_size": 9, "target_vocabulary_size": WORDS, "embedding": 4, "hidden": 5}
    settings = {**sizes, "attention_hidden": 3, "maxout": 4, "output_rank": 0, "attention": attention, **changes}
    model = TranslationModel(ModelConfig(**{"initialisation": "xavier", **settings})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(spread).add_(torch.randn_like(weight) * 0.1)  # so that hypotheses differ
    return model


def copies_of(model, sentences=SENTENCES):
    """What a copying model copies from each place of the sentences; None for another model."""
    return [COPIES[tuple(sentence)] for sentence in sentences] if model.config.copy else None


def scorer_of(model, dtype=None):
    return partial(ModelSession, Inference(model, dtype))


def sources_of(sentences, candidates=None, prefixes=None, copies=None):
    return Sources(*make_source(sentences), candidates, prefixes, None if copies is None else make_source(copies)[0])


def search(
    scorer, sentences, candidates=None, prefixes=None, phrases=None, copies=None, keep_weights=False, **settings
):
    config, sources = TranslateConfig(**settings), sources_of(sentences, candidates, prefixes, copies)
    if not phrases:
        return BeamSearch(sources, config, keep_weights).run(scorer)
    every = zip(phrases, prefixes or [()] * len(sentences), strict=True)
    return PhraseSearch(sources, config, [phrases_of(own, prefix) for own, prefix in every], keep_weights).run(scorer)


def phrases_of(phrases, prefix=()):
    """The phrases of a sentence in which each word is a character, and each unknown word of a phrase another one."""
    unknown = itertools.count(-1, -1)
    ways = [tuple(next(unknown) if word == 1 else word for word in phrase) for phrase in phrases if phrase]
    required = [RequiredPhrase(re.compile("".join(map(text_of, way))), len(way), (way,)) for way in ways]
    return Phrases(required, text_of, [text_of(n) for n in range(-1, next(unknown), -1)], prefix)


def text_of(word):
    """A character for each word."""
    return chr(0x4E00 + word)


@torch.inference_mode()
def walk(scorer, source, tokens, candidates=None, copies=None):
    """(log-probabilities, weights) of a translation and its `</s>`, one row, step by step."""
    session = scorer(sources_of([source], candidates, copies=None if copies is None else [copies]))
    found, read, choice = [], [], None
    for word in (*tokens, 0):
        session.step(choice)
        column = word if candidates is None else list(candidates.words).index(word)
        found.append(float(session.log_probs(slice(0, 1))[0, column]))
        read.append(None if session.weights is None else session.weights[0].float().numpy())
        choice = Choice(None, torch.zeros(1, dtype=torch.long), torch.tensor([word]))
    return found, None if read[0] is None else np.stack(read)


@torch.inference_mode()
def forced(model, source, target, copies=None):
    """The same by the model's forced pass."""
    out = model.force(*make_batch([(source, list(target))], copies=None if copies is None else [copies]).inputs())
    return out.log_probs[0].tolist(), None if out.weights is None else out.weights[0].numpy()


def every_translation(limit, words):
    """All of fewer than `limit` words."""
    return [tokens for length in range(limit) for tokens in itertools.product(words, repeat=length)]


def enumerated(scorer, source, translations, scoring=None, candidates=None, copies=None):
    """(score, tokens) of translations, best first."""
    scored = []
    for tokens in translations:
        log_probs, weights = walk(scorer, source, tokens, candidates, copies)
        read = None if weights is None else weights.sum(0)[: len(source)]
        scored.append(((scoring or Scoring()).score(sum(log_probs), len(log_probs), read), tokens))
    return sorted(scored, key=lambda each: -each[0])


@torch.inference_mode()
def searched_by_hand(scorer, source, beam, prefix=(), candidates=None, shortest=0, most_steps=None):
    """(log-probability, tokens) of the translations that a beam search finishes, by the loop of the released code.

    The search ends when the beam is empty. Without `most_steps` it makes as many steps as the source has tokens, and
    one more than the prefix has at least. `</s>` is banned in the first `shortest` steps. The released code drops the
    hypotheses that are open after the last step; here they must end with it.
    """
    most_steps = most_steps or max(len(source), len(prefix)) + 1
    words = np.arange(scorer.table.shape[-1]) if candidates is None else candidates.words
    session, choice = scorer(sources_of([source], candidates)), None
    opened, ended = [(0.0, ())], []
    for step in range(most_steps):
        session.step(choice)
        gains = session.log_probs(slice(0, len(opened))).double().numpy()
        free = (words != 1) & ((words != 0) | (step >= shortest)) if step + 1 < most_steps else words == 0
        gains[:, ~(words == prefix[step] if step < len(prefix) else free)] = -np.inf
        totals = (gains + np.array([total for total, _ in opened])[:, None]).ravel()
        best = [int(at) for at in np.argsort(-totals, kind="stable")[: beam - len(ended)] if totals[at] > -np.inf]
        found = [(float(totals[at]), (*opened[at // len(words)][1], int(words[at % len(words)]))) for at in best]
        ended += [(total, tokens[:-1]) for total, tokens in found if tokens[-1] == 0]
        rows = [at // len(words) for at, (_, tokens) in zip(best, found, strict=True) if tokens[-1]]
        opened = [each for each in found if each[1][-1]]
        if not opened:
            break
        choice = Choice(None, torch.tensor(rows), torch.tensor([tokens[-1] for _, tokens in opened]))
    return ended


def candidates_of(*allowed):
    """Makes candidates from sets of words, one per sentence; `</s>` and `<unk>` are in each."""
    words = sorted({0, 1}.union(*allowed))
    return Candidates(np.array(words), np.array([[word in {0, 1} | own for word in words] for own in allowed]))


def texts(found):
    return [hypothesis.tokens for hypothesis in found]


def same(found, expected, error=1e-5):
    scores = ([hypothesis.score for hypothesis in own] for own in (found, expected))
    return texts(found) == texts(expected) and np.allclose(*scores, rtol=0, atol=error)
