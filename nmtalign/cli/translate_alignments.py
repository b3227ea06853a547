"""What `nmtalign translate --alignments FILE.h5` keeps, in step with the translations themselves."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.alignment_writer import AlignmentWriter
from nmtalign.alignment.links import merge_log_probs, merge_pieces
from nmtalign.cli.common import say
from nmtalign.cli.translate_output import FileOutput, StreamOutput
from nmtalign.errors import NmtalignError
from nmtalign.files import sha256_of
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.translating.inputs import Inputs
from nmtalign.translating.translation import Translation
from nmtalign.translating.translator import Translator

Keep = Callable[[int, Translation], None]


@dataclass(frozen=True)
class Alignments:
    """The HDF5 file of a run: of which translations, and how weights are stored (float16 or float32)."""

    path: Path
    n_best: bool
    weights: str
    resume: bool

    def is_whole(self, sentences: int) -> bool:
        """Whether the file is there, with so many sentences, and no interrupted run has left one to go on with."""
        if self.path.with_name(f"{self.path.name}.partial").exists() or not self.path.is_file():
            return False
        with AlignmentFile(self.path) as file:
            return file.sentence_count() == sentences

    @contextlib.contextmanager
    def opened(
        self, translator: Translator, settings: TranslateConfig, inputs: Inputs, output: StreamOutput | FileOutput
    ) -> Iterator[Keep]:
        """Yields what is to be told of each translation; with `resume` the output goes on where this file does."""
        attributes = self._attributes(translator, settings, inputs)
        at_most = output.done if self.resume else None
        tokenizers = translator.loaded.tokenizers
        with AlignmentWriter(self.path, attributes, self.weights, resume=self.resume, at_most=at_most) as writer:
            if writer.kept is not None:
                say(f"{writer.partial} was there; kept as {writer.kept}, and --resume would have gone on with it")
            if isinstance(output, FileOutput) and self.resume:
                self._bring_into_step(output, writer.sentences)
            yield lambda number, translation: self._keep(writer, number, translation, tokenizers)

    def _attributes(self, translator: Translator, settings: TranslateConfig, inputs: Inputs) -> dict[str, object]:
        loaded = translator.loaded
        options = {
            "command": "translate",
            "alignments_of": "n-best" if self.n_best else "best",
            **dataclasses.asdict(settings),
            "prefix_file": str(inputs.prefixes or ""),
            "phrase_file": str(inputs.phrases or ""),
        }
        return {
            "model_hash": "+".join(model.hash for model in translator.models),
            "direction": f"{loaded.source_language}-{loaded.target_language}",
            "made_by": "sampling" if settings.sample else "beam search",
            "options": json.dumps(options),
            "seed": settings.seed if settings.sample else 0,
            "source_file": ", ".join(map(str, inputs.paths)),
            "source_sha256": ", ".join(sha256_of(path) if path.is_file() else "" for path in inputs.paths),
        }

    def _bring_into_step(self, output: FileOutput, sentences: int) -> None:
        """Both go on after the same line: the one before which neither has all."""
        if sentences < output.done:
            say(
                f"{output.file.found} holds {output.done:,} lines, and there are alignments of {sentences:,}: "
                f"both go on after line {sentences:,}"
            )
            output.keep(sentences)

    def _keep(self, writer: AlignmentWriter, number: int, translation: Translation, tokenizers: Tokenizers) -> None:
        """Adds the alignment of the best translation, or of all, between words."""
        source = translation.source_tokens
        source_index, source_words = tokenizers.source.word_index(source), tokenizers.source.words(source)
        for rank, entry in enumerate(translation.n_best if self.n_best else translation.n_best[:1]):
            if entry.alignment is None:
                raise NmtalignError("the search kept no weights; this is a bug of nmtalign")
            target_index = tokenizers.target.word_index(entry.tokens)
            writer.append(
                source_words,
                tokenizers.target.words(entry.tokens),
                merge_pieces(entry.alignment, source_index, target_index),
                entry.log_prob,
                number,
                token_log_probs=merge_log_probs(np.array(entry.token_log_probs), target_index),
                rank=rank,
            )
