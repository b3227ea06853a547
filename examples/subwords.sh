#!/usr/bin/env bash
# Subwords (sentencepiece) instead of words: no unknown words, and a smaller softmax layer.
# Usage: subwords.sh FOLDER [options of `nmtalign train`]      (FOLDER is made by `nmtalign sample`)
set -euo pipefail
cd -- "$1"
shift

nmtalign prep --subwords -o data-subwords/
nmtalign train data-subwords/ -o model-subwords/ "$@"
nmtalign translate -m model-subwords/ --n-best 3 --format json < test.en | head -n 2
nmtalign translate -m model-subwords/ < test.en | nmtalign score - -r test.fr
