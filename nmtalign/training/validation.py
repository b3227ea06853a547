"""Validation on the dev set: loss per word, BLEU, and one translation as a sample."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from nmtalign.core.inference import Inference
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import BatchPolicy, Ids, Indices, eligible, load_batches, make_source, plan_epoch
from nmtalign.data.copy_ids import CopyIds
from nmtalign.data.corpus import Corpus, Split
from nmtalign.errors import Abandoned, abandoned_if
from nmtalign.scoring.metrics import MetricOptions, Score, bleu, measure, tokenizer_for
from nmtalign.search.beam_search import SearchOptions, beam_search
from nmtalign.search.scorer import ModelScorer
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.text.vocabulary import pair_ids
from nmtalign.training.checkpoints import Position
from nmtalign.training.distributed import World
from nmtalign.training.events import Validated, perplexity
from nmtalign.translating.confidence import Calibration, mean_probability

BATCH = 50  # sentences translated together
AS_SLOW = 5  # translating a sentence takes about as long as computing the loss of this number of pairs
T = TypeVar("T")


@dataclass(frozen=True)
class Validation:
    """The results of one validation."""

    nll: float
    words: int
    sentences: int
    score: Score | None
    sample: tuple[str, str, str]  # source, translation, reference
    probabilities: Sequence[float] = ()  # of the translations (see nmtalign.translating.confidence)
    translations: Sequence[str] = ()
    references: Sequence[str] = ()

    def calibration(self) -> str:
        """The calibration of the confidence by the chrF of each translation, for the file of the weights; may be ""."""
        if not self.translations:
            return ""
        options = MetricOptions(("chrf",))
        (chrf,) = measure(self.translations, [self.references], options, processes=1)
        return str(Calibration.fit(self.probabilities, np.clip(chrf.values(chrf.rows) / 100, 0, 1).tolist()) or "")

    @property
    def loss(self) -> float:
        """Nats per word."""
        return self.nll / max(1, self.words)

    def value(self, config: TrainingConfig) -> float:
        """The value that is compared with other validations; higher is better."""
        return self.score.value if config.metric == "bleu" and self.score is not None else -self.loss


class Validator:
    """Validates a model on the dev set; each process computes a part of the sentences, and all receive the result."""

    def __init__(
        self,
        model: TranslationModel,
        corpus: Corpus,
        config: TrainingConfig,
        dtype: torch.dtype | None,
        world: World,
        asked: Callable[[], bool],
        progress: Callable[[float], None],
    ) -> None:
        """`asked` returns whether this process was asked to stop; `progress` gets the share of the work, 0 to 1."""
        self._model, self._corpus, self._config, self._dtype = model, corpus, config, dtype
        self._world, self._asked, self._progress, self._dev = world, asked, progress, corpus.splits["dev"]

    @torch.no_grad()
    def validate(self, position: Position) -> Validation:
        """Loss of all dev pairs, and greedy BLEU of the first `bleu_sentences`; the update selects the sample.

        Raises Abandoned in all processes soon after one was asked to stop.
        """
        training, dev = self._model.training, self._dev
        count = min(self._config.bleu_sentences, len(dev))
        share = len(dev) / (len(dev) + AS_SLOW * count)  # of the loss in the work
        self._progress(0.0)
        self._model.eval()
        nll, words, sentences = self._world.all_reduce_sum(self._loss(share))
        # A model that has diverged has no best word; the training loop notices this itself.
        count = count if math.isfinite(nll) else 0
        translations, probabilities = self._translate_greedily(count, share)
        references = [dev.target_text(index) for index in range(count)]
        score = bleu(translations, references, tokenize=position.tokenizer) if count else None
        sample = ("", "", "")
        if count:
            pick = position.update * 7919 % count
            sample = (dev.source_text(pick), translations[pick], references[pick])
        self._model.train(training)
        return Validation(nll, int(words), int(sentences), score, sample, probabilities, translations, references)

    def in_step(self, parts: Iterable[T], count: int) -> Iterator[T]:
        """Yields the `count` parts of this process; before each and after the last, all processes agree to continue.

        Raises Abandoned in all of them if one was asked to stop. They may have different numbers of parts.
        """
        rest = iter(parts)
        for number in range(int(self._world.all_reduce_max([count])[0]) + 1):
            if self._world.all_reduce_max([self._asked()])[0]:
                raise Abandoned
            if number < count:
                yield next(rest)

    def _loss(self, share: float) -> tuple[float, int, int]:
        """(negative log-likelihood, target words, sentences) of this process' part of the dev set."""
        nll, words, sentences, dev = 0.0, 0, 0, self._dev
        mine = self._world.share(_by_length(dev, eligible(dev, 0)))
        policy = BatchPolicy(self._config.batch_size, self._config.batch_unit, 1000, "once")
        plan = plan_epoch(dev, mine, policy, 0) if len(mine) else []
        complete = CopyIds(self._corpus, dev) if self._model.config.copy else None
        for batch in self.in_step(load_batches(dev, plan, complete=complete), len(plan)):
            loss = self._model.loss(*batch.to(self._world.device).inputs(), dtype=self._dtype)
            nll, words, sentences = nll + float(loss.nll), words + batch.target_words, sentences + batch.sentences
            self._progress(share * sentences / len(mine))
        return nll, words, sentences

    def _translate_greedily(self, count: int, done: float) -> tuple[list[str], list[float]]:
        """The first `count` dev sentences in the target language, as text, and the mean probability of each.

        Beam 1, `<unk>` allowed. An empty sentence has an empty translation. `done` is the share of the earlier work.
        """
        corpus, dev, world = self._corpus, self._dev, self._world
        order = _by_length(dev, np.flatnonzero(dev.source_lengths[:count]))
        scorer, options = ModelScorer(Inference(self._model)), SearchOptions(beam=1, allow_unk=True)
        mine, found = world.share(order), list[tuple[str, float]]()
        starts = range(0, len(mine), BATCH)
        for start in self.in_step(starts, len(starts)):
            self._progress(done + (1 - done) * start / len(mine))
            part = mine[start : start + BATCH]
            tokens, ids, copied = zip(*(self._source(int(index)) for index in part), strict=True)
            source, mask = (each.to(world.device) for each in make_source(ids))
            copies = make_source(copied)[0].to(world.device) if self._model.config.copy else None
            with contextlib.suppress(Abandoned), abandoned_if(self._asked):  # all processes stop before the next batch
                for own, hypotheses in zip(
                    tokens, beam_search(scorer, source, mask, options, copies=copies), strict=True
                ):
                    words = corpus.target_vocabulary.decode(hypotheses[0].tokens, own)
                    found.append((corpus.tokenizers.target.detokenize(words), mean_probability(hypotheses[0])))
        texts, probabilities = [""] * count, [1.0] * count
        for rank, translations in enumerate(world.all_gather(found)):
            for index, (text, probability) in zip(order[rank :: world.size], translations, strict=True):
                texts[index], probabilities[index] = text, probability
        return texts, probabilities

    def _source(self, index: int) -> tuple[Sequence[str], Ids, Ids]:
        """(tokens, ids, copied ids) of a source sentence; a model that does not copy needs only the ids."""
        if not self._model.config.copy:
            return (), self._dev.pair(index)[0], ()
        corpus = self._corpus
        tokens = corpus.tokenizers.source.tokenize(self._dev.source_text(index))
        ids, _, copied = pair_ids((corpus.source_vocabulary, corpus.target_vocabulary), tokens, copy=True)
        return tokens, ids, copied


def _by_length(dev: Split, indices: Indices) -> Indices:
    order: Indices = indices[np.argsort(dev.source_lengths[indices], kind="stable")]
    return order


def tokenizer_of(corpus: Corpus) -> str:
    """The tokeniser of dev BLEU, by the target language."""
    dev = corpus.splits.get("dev")
    lines = [dev.target_text(index) for index in range(min(len(dev), 100))] if dev else []
    return tokenizer_for(corpus.target_language, lines)


def judge(found: Validation, position: Position, config: TrainingConfig, when: tuple[int, float, float]) -> Validated:
    """Records in the position whether this validation is the best so far; returns its event at `when`.

    If BLEU is equal, as at the beginning, where it is 0, the lower loss is better.
    """
    loss, score, value = found.loss, found.score, found.value(config)
    least = math.inf if position.best_loss is None else position.best_loss
    best = math.isfinite(value) and (position.best is None or (value, -loss) > (position.best, -least))
    if best:
        position.best, position.best_loss, position.since_best = value, loss, 0
        position.best_update = position.update
        position.best_bleu = score.value if score else None
    else:
        position.since_best += 1
    return Validated(
        *when,
        loss=loss,
        loss_sentence=found.nll / max(1, found.sentences),
        perplexity=perplexity(loss),
        bleu=score.value if score else None,
        signature=score.signature if score else None,
        best=best,
        patience_left=config.patience - position.since_best if config.patience else None,
        sample_source=found.sample[0],
        sample_translation=found.sample[1],
        sample_reference=found.sample[2],
    )
