"""The training loop: batches to updates, validation, checkpoints, and going on where a run was cut off."""

import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch.nn.utils import clip_grad_norm_

from nmtalign.config import ModelConfig, TrainingConfig
from nmtalign.core.devices import pick_device, picks_bf16, use_threads
from nmtalign.core.model import Loss, TranslationModel
from nmtalign.data.batches import Batch, BatchPolicy, Indices, eligible, load_batches, plan_epoch
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError, TrainingError, UsageError
from nmtalign.model_directory import check_files, create_model_directory, read_settings, save_tensors
from nmtalign.training.budget import Budget, Every
from nmtalign.training.events import Event, Finished, Listener, Saved, Skipped, Started, Validated
from nmtalign.training.log import EventLog
from nmtalign.training.optimizers import learning_rate, make_optimizer, set_learning_rate
from nmtalign.training.progress import Meter, perplexity
from nmtalign.training.state import STATE, Position, load_state, read_position, save_state
from nmtalign.training.validation import Validation, validate
from nmtalign.version import __version__

MAY_CHANGE = frozenset(
    {"max_updates", "epochs", "max_time", "patience", "log_every"}
    | {"validate_every", "checkpoint_every", "bleu_sentences", "device", "threads"}
)
BAD_IN_A_ROW = 10


class Trainer:
    """Trains one model directory. `run` again after an interruption goes on; `stop` ends it at the next update."""

    def __init__(
        self,
        corpus: Corpus,
        folder: Path,
        preset: str,
        model_config: ModelConfig,
        config: TrainingConfig,
        listen: Listener,
        restart: bool = False,
    ) -> None:
        self.corpus, self.folder, self.config, self._listen = corpus, folder, config, listen
        self._stop: str | None = None
        self.updates_done = 0  # by this `run`, not by the runs that it goes on from
        use_threads(config.threads)
        self.device = pick_device(config.device)
        self.bf16 = picks_bf16(config.precision, self.device)
        fingerprint = _fingerprint(corpus, model_config, config)
        found = not restart and _find_run(folder, fingerprint, corpus)
        self.chosen = eligible(corpus.splits["train"], config.max_length)
        if not len(self.chosen):
            raise InputError(f"{corpus.folder}: no training pair within max_length = {config.max_length}")
        if not found:
            (folder / STATE).unlink(missing_ok=True)
            create_model_directory(folder, corpus, preset, model_config, config)
        torch.manual_seed(config.seed)
        self.model = TranslationModel(model_config).to(self.device)
        self.model.use_bf16(self.bf16)
        self.optimizer = make_optimizer(self.model.parameters(), config)
        self.position = load_state(folder, self.model, self.optimizer) if found else Position()
        self.resumed, self._fingerprint = found, fingerprint
        self.budget = Budget.of(config)
        self._policy = BatchPolicy(config.batch_size, config.batch_unit, config.window, config.shuffle, config.seed)
        self._batches_in_epoch = len(self._plan())
        self._meter = Meter()

    def stop(self, reason: str) -> None:
        """Asks for an end after the present update, with a checkpoint; may be called from a signal handler."""
        self._stop = reason

    def run(self) -> Finished:
        """Trains until the budget is spent, progress has ended, or `stop`; raises TrainingError if it cannot go on."""
        position = self.position
        self._log = EventLog(self.folder, position.update)
        self._emit(self._started())
        self._clock = time.perf_counter() - position.seconds
        self._validations = Every("validate_every", self.config.validate_every, position.seconds)
        self._checkpoints = Every("checkpoint_every", self.config.checkpoint_every, position.seconds)
        self.model.train()
        self._meter.reset()
        reason = self._budget_spent() or self._patience_spent()
        if reason is None:
            position.finished = None  # a run that had come to its end goes on with a larger budget
        while reason is None:
            reason = self._train_epoch()
        return self._finish(reason)

    def _plan(self) -> list[Indices]:
        """The batches of the present epoch."""
        return plan_epoch(self.corpus.splits["train"], self.chosen, self._policy, self.position.epoch)

    def _train_epoch(self) -> str | None:
        """The batches of the present epoch that are left; returns the reason to end, if there is one."""
        train, position, plan = self.corpus.splits["train"], self.position, self._plan()
        self._batches_in_epoch = len(plan)
        for batch in load_batches(train, plan[position.batch :]):
            self._update(batch)
            position.batch += 1
            if ended := position.batch == len(plan):
                position.epoch, position.batch = position.epoch + 1, 0
            position.seconds = time.perf_counter() - self._clock
            if reason := self._after_update(ended):
                return reason
        return None

    def _update(self, batch: Batch) -> None:
        """One minibatch: loss, gradient, clipping, step. A gradient that is not finite changes nothing."""
        config, position = self.config, self.position
        there = batch.to(self.device)
        loss = self.model.loss(there.source, there.source_mask, there.target, there.target_mask, config.label_smoothing)
        (loss.objective / self._denominator(loss)).backward()
        norm = clip_grad_norm_(self.model.parameters(), config.clip_norm or torch.inf, foreach=True)
        position.update += 1
        self.updates_done += 1
        self._meter.add(batch, loss, int(batch.source_mask.sum()), norm)
        if bool(norm.isfinite()):
            position.bad_in_a_row = 0
            set_learning_rate(self.optimizer, self._rate())
            self.optimizer.step()
        else:
            self._skip(batch)
        self.optimizer.zero_grad(set_to_none=True)

    def _denominator(self, loss: Loss) -> int:
        return {"sentences": loss.sentences, "tokens": loss.words, "sum": 1}[self.config.loss_normalization]

    def _skip(self, batch: Batch) -> None:
        position = self.position
        position.skipped += 1
        position.bad_in_a_row += 1
        self._emit(Skipped(*self._when(), position.bad_in_a_row))
        if position.bad_in_a_row >= BAD_IN_A_ROW:
            pairs = ", ".join(str(index) for index in batch.indices[:5])
            raise TrainingError(
                f"{self.folder}: the gradient was not finite {BAD_IN_A_ROW} times in a row, the last with the batch of "
                f"training pairs {pairs}, ...; the last checkpoint is kept: lower the learning rate and go on"
            )

    def _after_update(self, epoch_ended: bool) -> str | None:
        position = self.position
        if position.update % self.config.log_every == 0:
            self._report()
        validated = self._validations.due(position.update, position.seconds, epoch_ended)
        if validated:
            self._validate()
        reason = self._stop or self._budget_spent() or self._patience_spent()
        if reason is None and (self._checkpoints.due(position.update, position.seconds, epoch_ended) or validated):
            self._save()
        return reason

    def _budget_spent(self) -> str | None:
        return self.budget.reached(self.position.update, self._epochs(), self.position.seconds)

    def _patience_spent(self) -> str | None:
        patience = self.config.patience
        if patience and self.position.since_best >= patience:
            return f"no progress on dev in {patience} validations"
        return None

    def _finish(self, reason: str) -> Finished:
        """Last validation and checkpoint; an interruption (`stop`) only saves."""
        position, complete = self.position, self._stop is None
        if self._meter:
            self._report()
        if complete and position.finished is None:
            if not self._validated_now:
                self._validate()
            position.finished = reason
        self._save()
        finished = Finished(*self._when(), reason, complete, position.best_loss, position.best_bleu)
        self._emit(finished)
        return finished

    @property
    def _validated_now(self) -> bool:
        return self._last_validation == self.position.update

    _last_validation = -1

    def _validate(self) -> None:
        """One look at the dev set; without a dev set, the last weights count as the best."""
        began = time.perf_counter()
        position = self.position
        self._last_validation = position.update
        dev = self.corpus.splits.get("dev")
        if dev is None or not len(dev):
            self._keep_best()
            return
        seen = validate(self.model, self.corpus, dev, self.config, position.update)
        self._judge(seen)
        self._meter.pause(time.perf_counter() - began)

    def _judge(self, seen: Validation) -> None:
        position, config = self.position, self.config
        loss, score = seen.nll / max(1, seen.words), seen.score
        value = score.value if config.metric == "bleu" and score is not None else -loss
        best = position.best is None or value > position.best
        if best:
            position.best, position.best_loss, position.since_best = value, loss, 0
            position.best_bleu = score.value if score else None
            self._keep_best()
        else:
            position.since_best += 1
        event = Validated(
            *self._when(),
            loss=loss,
            loss_sentence=seen.nll / max(1, seen.sentences),
            perplexity=perplexity(loss),
            bleu=score.value if score else None,
            signature=score.signature if score else None,
            best=best,
            patience_left=config.patience - position.since_best if config.patience else None,
            sample_source=seen.sample[0],
            sample_translation=seen.sample[1],
            sample_reference=seen.sample[2],
        )
        self._emit(event)

    def _keep_best(self) -> None:
        self._write_weights("best")

    def _write_weights(self, name: str) -> None:
        metadata = {"update": str(self.position.update), "fingerprint": self._fingerprint}
        save_tensors(self.folder / f"{name}.safetensors", self.model.state_dict(), metadata)

    def _save(self) -> None:
        """A checkpoint: last weights, then the state; whichever is cut off, the state before it is whole."""
        began = time.perf_counter()
        self.position.seconds = began - self._clock
        self._write_weights("last")
        path = save_state(self.folder, self.model, self.optimizer, self.position, self._fingerprint)
        self._emit(Saved(*self._when(), str(path)))
        self._meter.pause(time.perf_counter() - began)

    def _report(self) -> None:
        position = self.position
        done = self._done()
        left = position.seconds * (1 - done) / done if done > 0 else None
        self._emit(
            self._meter.report(
                self._when(),
                learning_rate=self._rate(),
                done=done,
                seconds_left=left,
                skipped=position.skipped,
            )
        )
        self._meter.reset()

    def _rate(self) -> float:
        return learning_rate(self.config, self.position.update, self._done())

    def _done(self) -> float:
        return self.budget.done(self.position.update, self._epochs(), self.position.seconds)

    def _epochs(self) -> float:
        return self.position.epoch + self.position.batch / self._batches_in_epoch

    def _when(self) -> tuple[int, float, float]:
        return self.position.update, round(self._epochs(), 4), round(self.position.seconds, 3)

    def _started(self) -> Started:
        return Started(
            *self._when(),
            resumed=self.resumed,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            pairs=len(self.chosen),
            left_out=len(self.corpus.splits["train"]) - len(self.chosen),
            device=str(self.device),
            precision="bf16" if self.bf16 else "fp32",
            threads=torch.get_num_threads(),
            version=__version__,
            torch=torch.__version__,
            seed=self.config.seed,
        )

    def _emit(self, event: Event) -> None:
        self._log.write(event)
        self._listen(event)


def _fingerprint(corpus: Corpus, model: ModelConfig, config: TrainingConfig) -> str:
    """What must be the same for a run to go on: corpus, model, and the settings that shape the updates."""
    fixed = {name: value for name, value in asdict(config).items() if name not in MAY_CHANGE}
    text = json.dumps([corpus.hash, asdict(model), fixed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _find_run(folder: Path, fingerprint: str, corpus: Corpus) -> bool:
    """Whether the folder holds a run that goes on with these settings; raises UsageError if it holds another."""
    if not (folder / "config.json").exists():
        return False
    settings = read_settings(folder)
    found = read_position(folder)
    if found is None:
        return False  # cut off before its first checkpoint: nothing to lose
    check_files(folder, settings)
    if found[1] == fingerprint:
        return True
    what = "another corpus" if settings.get("corpus") != corpus.hash else "other settings"
    raise UsageError(
        f"{folder}: holds a model trained on {what}; give another folder with -o, or train anew over it with --restart"
    )
