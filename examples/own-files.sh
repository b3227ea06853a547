#!/usr/bin/env bash
# All steps on your own files, without a workspace file: prepare, train, translate, score, align.
# Usage: own-files.sh TRAIN DEV TEST SRC TGT [options of `nmtalign train`]
#   TRAIN, DEV and TEST are file names without the language. For train.en and train.fr give `train ... en fr`.
set -euo pipefail
train=$1 dev=$2 test=$3 src=$4 tgt=$5
shift 5

nmtalign prep "$train.$src" "$train.$tgt" --dev "$dev.$src" "$dev.$tgt" --test "$test.$src" "$test.$tgt" -o data/
nmtalign train data/ -o model/ "$@"
nmtalign translate -m model/ < "$test.$src" | tee "out.$tgt" |
    nmtalign score - -r "$test.$tgt" -s "$test.$src" --by-length
nmtalign align "$test.$src" "$test.$tgt" -m model/ -o alignments.h5 --pharaoh > links.txt
