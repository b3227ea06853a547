#!/usr/bin/env bash
# The best model of a small corpus (about 30,000 pairs): joint subwords, marginal attention, strong dropout, 25 epochs.
# Usage: small-corpus.sh TRAIN DEV TEST SRC TGT [options of `nmtalign train`]
#   TRAIN, DEV and TEST are file names without the language. For train.en and train.fr give `train ... en fr`.
set -euo pipefail
train=$1 dev=$2 test=$3 src=$4 tgt=$5
shift 5

nmtalign prep "$train.$src" "$train.$tgt" --dev "$dev.$src" "$dev.$tgt" --vocabulary bpe --size "${SUBWORDS:-4000}" --joint -o data-small/
nmtalign train data-small/ -o model-small/ --preset small --hidden 384 --attention-hidden 256 --attention-kind marginal \
    --attention-positions 4 --order update-look-generate --shared-embeddings --dropout 0.4 --epochs 25 "$@"
nmtalign translate -m model-small/ < "$test.$src" > "out-small.$tgt"
nmtalign score "out-small.$tgt" -r "$test.$tgt" -s "$test.$src" --by-length
# The score that publications report for Multi30k: BLEU of lowercased, tokenised text.
nmtalign score "out-small.$tgt" -r "$test.$tgt" --metrics multi-bleu --lowercase
