"""The training loop: batches to updates, validation, checkpoints, and going on where a run was cut off."""

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from nmtalign.config import ModelConfig, TrainingConfig
from nmtalign.core.devices import keep_memory, pick_device, picks_bf16, use_threads
from nmtalign.core.gpu import missing
from nmtalign.core.model import Activations
from nmtalign.data.batches import Batch, BatchPolicy, Indices, eligible, load_batches, plan_epoch
from nmtalign.data.corpus import Corpus
from nmtalign.errors import InputError, TrainingError, UsageError
from nmtalign.files import alone_in
from nmtalign.training.both import directions_of, lay_down, make_models
from nmtalign.training.budget import Budget, Every
from nmtalign.training.distributed import World
from nmtalign.training.events import Damaged, Event, Finished, Listener, Noticed, Saved, Skipped, Started
from nmtalign.training.given import Given
from nmtalign.training.log import EventLog
from nmtalign.training.optimizers import Schedule, make_optimizer
from nmtalign.training.progress import Meter
from nmtalign.training.runs import find_run, fingerprint_of
from nmtalign.training.state import Position, check_space, load_state, save_best, save_last, save_state, take_over
from nmtalign.training.updates import Group, Updater, cut_groups, seed_dropout
from nmtalign.training.validation import judge, validate
from nmtalign.version import __version__

BAD_IN_A_ROW = 10


class Trainer:
    """Trains one model directory. `run` again after an interruption goes on; `stop` ends it at the next update.

    In a world of several processes each makes the same calls; the first alone writes files and emits events. The
    folder is locked from the beginning to the end of `run`; a trainer that is not run gives it back by `close`.
    """

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
        self._stop_asked: str | None = None  # of this process
        self._stop: str | None = None  # that all processes know of
        self._locked = False
        self.updates_done = 0  # by this `run`, not by the runs that it goes on from
        use_threads(config.threads)
        keep_memory()
        self.world = world or World(pick_device(config.device))
        self.device = self.world.device
        self.bf16 = picks_bf16(config.precision, self.device)
        self._given = Given.read(corpus, model_config, config)
        self._fingerprint = fingerprint_of(corpus, model_config, config, self._given.identity)
        self.chosen = eligible(corpus.splits["train"], config.max_length)
        if not len(self.chosen):
            raise InputError(f"{corpus.folder}: no training pair within max_length = {config.max_length}")
        self._lock = contextlib.ExitStack()
        self._lock_folder()
        try:
            self._open(preset, model_config, restart)
        except BaseException:
            self.close()
            raise

    def _lock_folder(self) -> None:
        """Keeps other trainings out of the folder; raises UsageError where one is at work there."""
        if self.world.first and not self._locked:
            self._lock.enter_context(alone_in(self.folder))
            self._locked = True

    def close(self) -> None:
        """Lets other trainings use the folder."""
        self._locked = False
        self._lock.close()

    def _open(self, preset: str, model_config: ModelConfig, restart: bool) -> None:
        """Makes the model, and takes up the run that the folder holds or lays down a new one."""
        corpus, folder, config = self.corpus, self.folder, self.config
        found = find_run(folder, self._fingerprint, corpus) if self.world.first and not restart else None
        torch.manual_seed(config.seed)
        self.model = make_models(model_config, config)
        self.directions = directions_of(self.model, folder, corpus)
        self._given.start([direction.model for direction in self.directions])
        self.model.to(self.device)
        self._how = Activations(
            torch.bfloat16 if self.bf16 else None,
            # The processor then neither fills nor reads a gradient of the whole vocabulary; processes sum dense ones.
            sparse_gradients=self.world.alone and self.device.type == "cpu",
        )
        self.optimizer = make_optimizer(self.model.parameters(), config)
        self.position, self.resumed, self._damage = Position(), found is not None, ""
        if self.world.first:
            check_space([direction.folder for direction in self.directions], self.model)
        if found:
            for direction in self.directions:
                direction.check()
                take_over(direction.folder, found)
            self.position, self._damage = load_state(found, self.model, self.optimizer), found.damage or ""
        elif self.world.first:
            lay_down(self.directions, preset, config, restart)
        self._join_others()
        self.budget = Budget.of(config)
        self._schedule = Schedule(config, self.budget, self._notice)
        self._policy = BatchPolicy(config.batch_size, config.batch_unit, config.window, config.shuffle, config.seed)
        self._planned: tuple[int, Sequence[Indices]] | None = None
        self._batches_in_epoch = len(self._plan())
        self._updater = Updater(self.model, self.optimizer, config, self.world, self._notice, self._how)
        self._meter = Meter()

    def _join_others(self) -> None:
        """Begins where the first process begins; raises UsageError if the others train something else."""
        told = self.world.gather([self._fingerprint, json.dumps([self.resumed, asdict(self.position)])])
        if strange := [str(rank) for rank, (fingerprint, _) in enumerate(told) if fingerprint != told[0][0]]:
            raise UsageError(
                f"rank {', '.join(strange)} has another corpus or other settings than rank 0; give all the same"
            )
        self.resumed, position = json.loads(told[0][1])
        self.position = Position(**position)
        self.world.spread(self.optimizer)

    def stop(self, reason: str) -> None:
        """Asks for an end after the present update, with a checkpoint; may be called from a signal handler."""
        self._stop_asked = reason

    def run(self) -> Finished:
        """Trains until the budget is spent, progress has ended, or `stop`; raises TrainingError if it cannot go on."""
        try:
            self._lock_folder()
            return self._run()
        finally:
            self.close()

    def _run(self) -> Finished:
        position = self.position
        self._log = EventLog(self.folder, position.update) if self.world.first else None
        self._emit(self._started())
        if self._damage:
            self._emit(Damaged(*self._when(), self._damage))
        if self.device.type == "cuda" and (why := missing(self.device)):
            self._notice(f"the fused kernels are off: {why}; training goes on without them, slower")
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

    def _notice(self, text: str) -> None:
        self._emit(Noticed(*self._when(), text))

    def _plan(self) -> Sequence[Indices]:
        """The minibatches of the present epoch, planned once: with millions of pairs it takes seconds."""
        epoch = self.position.epoch
        if self._planned is None or self._planned[0] != epoch:
            self._planned = epoch, plan_epoch(self.corpus.splits["train"], self.chosen, self._policy, epoch)
        return self._planned[1]

    def _train_epoch(self) -> str | None:
        """The minibatches of the present epoch that are left; returns the reason to end, if there is one."""
        train, position, plan = self.corpus.splits["train"], self.position, self._plan()
        self._batches_in_epoch = len(plan)
        left = plan[position.batch :]
        batches = load_batches(train, self._updater.shares(left), self.device.type == "cuda", self._given.guide)
        for group in cut_groups(train, left, self.config.accumulate):
            finite = self._update(group, batches)
            position.batch += len(group.plan)
            if ended := position.batch == len(plan):
                position.epoch, position.batch = position.epoch + 1, 0
            self._count_skips(group, finite)
            if reason := self._after_update(ended):
                return reason
        return None

    def _update(self, group: Group, batches: Iterator[Batch]) -> bool:
        """One update; False if it was left out because its loss was not finite."""
        position = self.position
        position.update += 1
        self.world.update = position.update
        self.updates_done += 1
        seed_dropout(self.config.seed, position.update, self.world.rank, self.device)
        self._updater.gradient(group, batches, self._meter)
        norm, finite = self._updater.step(self._schedule.rate(position, self._done(), self._batches_in_epoch))
        self._meter.updated(norm, finite)
        return finite

    def _count_skips(self, group: Group, finite: bool) -> None:
        """Counts updates that were left out; raises TrainingError where too many were, one after the other."""
        position = self.position
        if finite:
            position.bad_in_a_row = 0
            return
        position.skipped += 1
        position.bad_in_a_row += 1
        self._emit(Skipped(*self._when(), position.bad_in_a_row))
        if position.bad_in_a_row >= BAD_IN_A_ROW:
            position.bad_in_a_row = 0
            self._save()  # the weights are those of the last good update
            pairs = ", ".join(str(index) for index in group.plan[0][:5])
            raise TrainingError(
                f"{self.folder}: the loss was not finite {BAD_IN_A_ROW} times in a row, the last time at update "
                f"{position.update} with the minibatch of training pairs {pairs}, ...; the last good weights are kept: "
                "the same command goes on with the minibatches after it, --restart begins anew"
            )

    def _after_update(self, epoch_ended: bool) -> str | None:
        """Report, validation and checkpoint, where they are due; returns the reason to end, if there is one."""
        position, before = self.position, self.position.seconds
        position.seconds = time.perf_counter() - self._clock
        if position.update % self.config.log_every == 0:
            self._report()
        self._agree()
        self._schedule.measure(position.seconds - before)
        validated = self._validations.due(position.update, position.seconds, epoch_ended)
        if validated:
            self._validate()
            self._agree()
        reason = self._stop or self._budget_spent() or self._patience_spent()
        if reason is None and (self._checkpoints.due(position.update, position.seconds, epoch_ended) or validated):
            self._save()
        return reason

    def _agree(self) -> None:
        """Time and a wish to stop, the same for all processes: from here on all take the same decisions."""
        gone = time.perf_counter() - self._clock
        self.position.seconds, stop = self.world.highest([gone, self._stop_asked is not None])
        if stop:
            told = self.world.gather([self._stop_asked or ""])
            self._stop = next(reason for (reason,) in told if reason)

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
        ended_before = position.finished is not None
        self._report()
        if complete and not ended_before:
            if position.validated != position.update:
                self._validate()
            position.finished = reason
        if not ended_before or self._damage:  # else it is left as it is, its time too
            self._save()
        finished = Finished(*self._when(), reason, complete, position.best_loss, position.best_bleu)
        self._emit(finished)
        return finished

    def _validate(self) -> None:
        """One look at the dev set; without a dev set, the last weights count as the best."""
        began = time.perf_counter()
        position = self.position
        position.validated = position.update
        dev = self.corpus.splits.get("dev")
        if dev is None or not len(dev):
            self._save_best()
            return
        seen = [
            validate(direction.model, direction.corpus, self.config, position.update, self.world, self._how)
            for direction in self.directions
        ]
        event = judge(seen, position, self.config, self._when())
        if event.best:
            self._save_best()
        self._emit(event)
        self._meter.pause(time.perf_counter() - began)

    def _save_best(self) -> None:
        if self.world.first:
            with self.world.writing():
                for direction in self.directions:
                    save_best(direction.folder, direction.model, self.position.update, self._fingerprint)

    def _save(self) -> None:
        """A checkpoint: last weights, then the state; whichever is cut off, the state before it is whole."""
        began = time.perf_counter()
        self._agree()
        if self.world.first:
            with self.world.writing():
                for direction in self.directions:
                    save_last(direction.folder, direction.model, self.position.update, self._fingerprint)
                path = save_state(self.folder, self.model, self.optimizer, self.position, self._fingerprint)
            self._emit(Saved(*self._when(), str(path)))
        self.world.meet()
        self._meter.pause(time.perf_counter() - began)

    def _report(self) -> None:
        if not self._meter:  # all updates since the last report were left out
            return
        position, done = self.position, self._done()
        left = position.seconds * (1 - done) / done if done > 0 else None
        event = self._meter.report(
            self._when(),
            self.world,
            learning_rate=self._schedule.last_rate,
            done=done,
            seconds_left=left,
            skipped=position.skipped,
        )
        self._emit(event)
        self._meter.reset()

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
            processes=self.world.size,
        )

    def _emit(self, event: Event) -> None:
        if self._log is not None:
            self._log.write(event)
            self._listen(event)
