"""Translates from Python: prints the score, the translation and its least certain word for each input line.

Usage: api.py MODEL < TEXT
"""

import sys

from nmtalign import Translation, Translator


def main() -> None:
    """Prints one line for each line of standard input, as soon as it arrives."""
    translator = Translator.load(sys.argv[1], beam=5)
    for t in translator.translate(line.rstrip("\n") for line in sys.stdin):
        print(f"{t.score:.3f}", t.text, least_certain(t) if t.tokens else "", sep="\t", flush=True)


def least_certain(translation: Translation) -> str:
    """Returns the token with the lowest log-probability, and the source token with its largest weight."""
    log_probs = translation.n_best[0].token_log_probs[:-1]  # without the one of </s>
    worst = log_probs.index(min(log_probs))
    read = translation.alignment[worst, :-1].argmax()  # the last column is </s>
    return f"{translation.tokens[worst]} ({translation.source_tokens[read]})"


if __name__ == "__main__":
    main()
