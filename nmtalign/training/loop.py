"""The training loop: batches to updates, validation, checkpoints, and going on where a run was cut off."""

import time
from pathlib import Path

import numpy as np
import torch

from nmtalign.config import ModelConfig, TrainingConfig
from nmtalign.core.devices import pick_device, picks_bf16, use_threads
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import BatchPolicy, Indices, eligible, load_batches, plan_epoch
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError, TrainingError
from nmtalign.model_directory import create_model_directory, save_tensors
from nmtalign.training.budget import Budget, Every
from nmtalign.training.distributed import World
from nmtalign.training.events import Event, Finished, Listener, Saved, Skipped, Started
from nmtalign.training.log import EventLog
from nmtalign.training.optimizers import learning_rate, make_optimizer
from nmtalign.training.progress import Meter
from nmtalign.training.runs import fingerprint_of, holds_run
from nmtalign.training.state import STATE, Position, load_state, save_state
from nmtalign.training.updates import Group, Updater, cut_groups
from nmtalign.training.validation import judge, validate
from nmtalign.version import __version__

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
        world: World | None = None,
    ) -> None:
        self.corpus, self.folder, self.config, self._listen = corpus, folder, config, listen
        self._stop: str | None = None
        self.updates_done = 0  # by this `run`, not by the runs that it goes on from
        use_threads(config.threads)
        self.world = world or World(pick_device(config.device))
        self.device = self.world.device
        self.bf16 = picks_bf16(config.precision, self.device)
        self._fingerprint = fingerprint_of(corpus, model_config, config)
        found = not restart and holds_run(folder, self._fingerprint, corpus)
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
        self.resumed = found
        self.budget = Budget.of(config)
        self._policy = BatchPolicy(config.batch_size, config.batch_unit, config.window, config.shuffle, config.seed)
        self._batches_in_epoch = len(self._plan())
        self._updater = Updater(self.model, self.optimizer, config, self.device)
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
        """The minibatches of the present epoch."""
        return plan_epoch(self.corpus.splits["train"], self.chosen, self._policy, self.position.epoch)

    def _train_epoch(self) -> str | None:
        """The minibatches of the present epoch that are left; returns the reason to end, if there is one."""
        train, position, plan = self.corpus.splits["train"], self.position, self._plan()
        self._batches_in_epoch = len(plan)
        left = plan[position.batch :]
        batches = iter(load_batches(train, left))
        for group in cut_groups(train, left, self.config.accumulate):
            position.update += 1
            self.updates_done += 1
            seed_dropout(self.config.seed, position.update, self.world.rank, self.device)
            self._updater.gradient(group, batches, self._meter)
            norm, finite = self._updater.step(self._rate())
            self._meter.updated(norm)
            self._count_skips(group, finite)
            position.batch += len(group.plan)
            if ended := position.batch == len(plan):
                position.epoch, position.batch = position.epoch + 1, 0
            position.seconds = time.perf_counter() - self._clock
            if reason := self._after_update(ended):
                return reason
        return None

    def _count_skips(self, group: Group, finite: bool) -> None:
        """Counts an update that was left out; raises TrainingError where too many were, one after the other."""
        position = self.position
        if finite:
            position.bad_in_a_row = 0
            return
        position.skipped += 1
        position.bad_in_a_row += 1
        self._emit(Skipped(*self._when(), position.bad_in_a_row))
        if position.bad_in_a_row >= BAD_IN_A_ROW:
            pairs = ", ".join(str(index) for index in group.plan[0][:5])
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
            if self._last_validation != position.update:
                self._validate()
            position.finished = reason
        self._save()
        finished = Finished(*self._when(), reason, complete, position.best_loss, position.best_bleu)
        self._emit(finished)
        return finished

    _last_validation = -1

    def _validate(self) -> None:
        """One look at the dev set; without a dev set, the last weights count as the best."""
        began = time.perf_counter()
        position = self.position
        self._last_validation = position.update
        dev = self.corpus.splits.get("dev")
        if dev is None or not len(dev):
            self._write_weights("best")
            return
        seen = validate(self.model, self.corpus, dev, self.config, position.update)
        event = judge(seen, position, self.config, self._when())
        if event.best:
            self._write_weights("best")
        self._emit(event)
        self._meter.pause(time.perf_counter() - began)

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


def seed_dropout(seed: int, update: int, rank: int, device: torch.device) -> None:
    """Gives every update, on every process, random numbers of its own that a resumed run draws again."""
    drawn = int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(drawn)
    if device.type == "cuda":
        torch.cuda.manual_seed(drawn)
