#!/usr/bin/env bash
# Subwords (sentencepiece) instead of words: no unknown words, and a smaller softmax layer.
# Usage: subwords.sh FOLDER [options of `nmtalign train`]      (FOLDER is made by `nmtalign sample`)
set -euo pipefail
cd -- "$1"
shift

nmtalign prep --vocabulary bpe --size 1000 -o data-bpe/
nmtalign train data-bpe/ -o model-bpe/ "$@"
nmtalign translate -m model-bpe/ --n-best 3 --format json < test.en | head -n 2
nmtalign translate -m model-bpe/ < test.en | nmtalign score - -r test.fr
