#!/usr/bin/env bash
# A small vocabulary: how much unknown words cost, and how much replacing them through the alignment recovers.
# Usage: unknown-words.sh FOLDER [options of `nmtalign train`]      (FOLDER is made by `nmtalign sample`)
set -euo pipefail
cd -- "$1"
shift

nmtalign prep --shortlist 1000 -o data-1000/
nmtalign train data-1000/ -o model-1000/ "$@"
nmtalign translate -m model-1000/ < test.en > banned.fr
nmtalign translate -m model-1000/ --replace-unk < test.en > replaced.fr
nmtalign score banned.fr -r test.fr -s test.en -m model-1000/ --known-words
nmtalign score replaced.fr -r test.fr
