"""Validation on the dev set: loss per word, BLEU, and one translation as a sample."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from nmtalign.core.inference import Inference
from nmtalign.core.model import Indices, make_source
from nmtalign.core.numerics import Abandoned, abandoned_if
from nmtalign.data.batches import CopyIds, eligible, load_batches, plan_epoch
from nmtalign.data.corpus import Split
from nmtalign.scoring.metrics import MetricOptions, Statistics, measure_systems, tokenizer_for
from nmtalign.search.beam_search import BeamSearch, ModelSession, Sources
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.text.tokenizer import pair_ids
from nmtalign.training.checkpoints import Position
from nmtalign.training.events import Validated, perplexity
from nmtalign.training.updates import TrainingSetup
from nmtalign.translating.translator import Calibration, mean_probability

BATCH = 50  # sentences translated together
AS_SLOW = 5  # translating a sentence takes about as long as computing the loss of this number of pairs
_OF_UPDATE = 1 / 3  # computing a loss takes about this share of the time of an update
T = TypeVar("T")


@dataclass(frozen=True)
class Validation:
    """The results of one validation."""

    loss: float  # nats per word
    loss_sentence: float
    bleu: Statistics | None
    sample: tuple[str, str, str]  # source, translation, reference
    probabilities: Sequence[float] = ()  # of the translations (see nmtalign.translating.translator)
    translations: Sequence[str] = ()
    references: Sequence[str] = ()

    def calibration(self) -> str:
        """The calibration of the confidence by the chrF of each translation, for the file of the weights; may be "".

        Blank lines do not count: no model has translated them.
        """
        if not self.translations:
            return ""
        options, probabilities = MetricOptions(("chrf",)), np.array(self.probabilities)
        ((chrf,),) = measure_systems([self.translations], [self.references], options, processes=1)
        counted = np.isfinite(probabilities)
        qualities = np.clip(chrf.values(chrf.rows[counted]) / 100, 0, 1)
        return str(Calibration.fit(probabilities[counted].tolist(), qualities.tolist()) or "")

    def judge(self, position: Position, config: TrainingConfig, when: tuple[int, float, float]) -> Validated:
        """Records in the position whether this validation is the best so far; returns its event at `when`.

        The lower loss is better if BLEU is equal, as at the beginning, where it is 0, or not of the same sentences.
        """
        bleu, count = self.bleu.score() if self.bleu else None, len(self.references)
        before = position.best_bleu if position.bleu_sentences == count else None
        gain = bleu - before if config.metric == "bleu" and bleu is not None and before is not None else 0.0
        least = math.inf if position.best_loss is None else position.best_loss
        best = math.isfinite(self.loss) and (gain, -self.loss) > (0.0, -least)
        position.since_best = 0 if best else position.since_best + 1
        if best:
            position.best_loss, position.best_bleu, position.best_update = self.loss, bleu, position.update
            position.bleu_sentences = count
        return Validated(
            *when,
            loss=self.loss,
            loss_sentence=self.loss_sentence,
            perplexity=perplexity(self.loss),
            bleu=bleu,
            signature=self.bleu.signature if self.bleu else None,
            best=best,
            patience_left=config.patience - position.since_best if config.patience else None,
            sample_source=self.sample[0],
            sample_translation=self.sample[1],
            sample_reference=self.sample[2],
        )


class Validator:
    """Validates a model on the dev set; each process computes a part of the sentences, and all receive the result."""

    def __init__(self, setup: TrainingSetup, asked: Callable[[], bool], progress: Callable[[float], None]) -> None:
        """`asked` returns whether the validation should end early; `progress` gets the share of the work, 0 to 1."""
        self._model, self._corpus, self._config, self._world = setup.model, setup.corpus, setup.config, setup.world
        self._dtype, self._asked, self._progress, self._dev = setup.dtype, asked, progress, setup.corpus.splits["dev"]
        lines = [self._dev.target.text(index) for index in range(min(len(self._dev), 100))]
        self._tokenizer = tokenizer_for(setup.corpus.target_language, lines)  # of dev BLEU

    def estimate(self, words: float) -> float:
        """About how many updates with this number of target words take as long as a validation; rather too many."""
        lengths = self._dev.target.lengths + 1
        return _OF_UPDATE * float(lengths.sum() + AS_SLOW * lengths[: self._config.bleu_sentences].sum()) / words

    @torch.no_grad()
    def validate(self, update: int) -> Validation:
        """Loss of all dev pairs, and greedy BLEU of the first `bleu_sentences`; `update` selects the sample.

        Raises Abandoned in all processes soon after `asked` is true in one.
        """
        dev, count = self._dev, min(self._config.bleu_sentences, len(self._dev))
        share = len(dev) / (len(dev) + AS_SLOW * count)  # of the loss in the work
        self._progress(0.0)
        self._model.eval()
        nll, words, sentences = self._world.all_reduce(self._loss(share), "sum")
        # A model that has diverged has no best word; the training loop notices this itself.
        count = count if math.isfinite(nll) else 0
        translations, probabilities = self._translate_greedily(count, share)
        references = [dev.target.text(index) for index in range(count)]
        bleu, sample = None, ("", "", "")
        if count:
            options = MetricOptions(("bleu",), tokenize=self._tokenizer)
            ((bleu,),) = measure_systems([translations], [references], options, processes=1)
            pick = update * 7919 % count
            sample = (dev.source.text(pick), translations[pick], references[pick])
        self._model.train()
        losses = nll / max(1, words), nll / max(1, sentences)
        return Validation(*losses, bleu, sample, probabilities, translations, references)

    def in_step(self, parts: Iterable[T], count: int) -> Iterator[T]:
        """Yields the `count` parts of this process; before each and after the last, all processes agree to continue.

        Raises Abandoned in all of them if `asked` is true in one. They may have different numbers of parts.
        """
        rest = iter(parts)
        for number in range(int(self._world.all_reduce([count], "max")[0]) + 1):
            if self._world.all_reduce([self._asked()], "max")[0]:
                raise Abandoned
            if number < count:
                yield next(rest)

    def _loss(self, share: float) -> tuple[float, int, int]:
        """(negative log-likelihood, target words, sentences) of this process' part of the dev set."""
        nll, words, sentences, dev = 0.0, 0, 0, self._dev
        own = self._world.share(_by_length(dev, eligible(dev, 0)))
        config = replace(self._config, window=1000, shuffle="once", seed=0)
        plan = plan_epoch(dev, own, config, 0) if len(own) else []
        additions = [CopyIds(self._corpus, dev)] if self._model.config.copy else []
        for batch in self.in_step(load_batches(dev, plan, additions=additions), len(plan)):
            with contextlib.suppress(Abandoned), abandoned_if(self._asked):  # all processes stop before the next batch
                nll += float(self._model.loss(*batch.to(self._world.device).inputs(), dtype=self._dtype).nll)
                words, sentences = words + batch.target_words, sentences + len(batch.indices)
                self._progress(share * sentences / len(own))
        return nll, words, sentences

    def _translate_greedily(self, count: int, done: float) -> tuple[list[str], list[float]]:
        """The first `count` dev sentences in the target language, as text, and the mean probability of each.

        Beam 1, `<unk>` allowed. An empty sentence has an empty translation, whose probability is nan. `done` is the
        share of the earlier work.
        """
        corpus, dev, world, copying = self._corpus, self._dev, self._world, self._model.config.copy
        vocabularies = corpus.source_vocabulary, corpus.target_vocabulary
        order = _by_length(dev, np.flatnonzero(dev.source.lengths[:count]))
        scorer, greedy = partial(ModelSession, Inference(self._model)), TranslateConfig(beam=1, allow_unk=True)
        own, translated = world.share(order), list[tuple[str, float]]()
        starts = range(0, len(own), BATCH)
        for start in self.in_step(starts, len(starts)):
            self._progress(done + (1 - done) * start / len(own))
            part = own[start : start + BATCH].tolist()
            tokens = [corpus.tokenizers.source.tokenize(dev.source.text(index)) for index in part]
            ids, _, copies = zip(*(pair_ids(vocabularies, words, copy=copying) for words in tokens), strict=True)
            source, mask = (tensor.to(world.device) for tensor in make_source(ids))
            columns = make_source(copies)[0].to(world.device) if copying else None
            with contextlib.suppress(Abandoned), abandoned_if(self._asked):
                found = BeamSearch(Sources(source, mask, copies=columns), greedy).run(scorer)
                for words, hypotheses in zip(tokens, found, strict=True):
                    decoded = corpus.target_vocabulary.decode(hypotheses[0].tokens, words)
                    text = corpus.tokenizers.target.detokenize(decoded)
                    translated.append((text, mean_probability(hypotheses[0])))
        texts, probabilities = [""] * count, [math.nan] * count
        for rank, translations in enumerate(world.all_gather(translated)):
            for index, (text, probability) in zip(order[rank :: world.size], translations, strict=True):
                texts[index], probabilities[index] = text, probability
        return texts, probabilities


def _by_length(dev: Split, indices: Indices) -> Indices:
    order: Indices = indices[np.argsort(dev.source.lengths[indices], kind="stable")]
    return order
