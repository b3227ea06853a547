#!/usr/bin/env bash
# A very good model of a small corpus (about 30,000 pairs): 8,000 joint unigram subwords, strong dropout, 21 epochs.
# Usage: small-corpus.sh TRAIN DEV TEST SRC TGT [options of `nmtalign train`]
#   TRAIN, DEV and TEST are file names without the language. For train.en and train.fr give `train ... en fr`.
#   The variable SUBWORDS is the number of subwords; if your text is too small for 8,000, prep names the largest number.
set -euo pipefail
train=$1 dev=$2 test=$3 src=$4 tgt=$5
shift 5

nmtalign prep "$train.$src" "$train.$tgt" --dev "$dev.$src" "$dev.$tgt" -o data-small/ \
    --vocabulary unigram --size "${SUBWORDS:-8000}" --set joint=true
nmtalign train data-small/ -o model-small/ --preset tiny --set hidden=256 --set embedding=192 --set maxout=192 \
    --set order=update-look-generate --set shared_embeddings=true --set dropout=0.35 --epochs 21 "$@"
nmtalign translate -m model-small/ < "$test.$src" > "out-small.$tgt"
nmtalign score "out-small.$tgt" -r "$test.$tgt" -s "$test.$src" --by-length
# The score that publications report for Multi30k: BLEU of lowercased, tokenised text.
nmtalign score "out-small.$tgt" -r "$test.$tgt" --metrics multi-bleu --set lowercase=true
