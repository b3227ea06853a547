#!/usr/bin/env bash
# The best model of a small corpus (about 30,000 pairs): two models translate the training text, a third one learns from them, and
# all three translate the test set together.
# Usage: small-corpus.sh TRAIN DEV TEST SRC TGT [options of `nmtalign train`]
#   TRAIN, DEV and TEST are file names without the language. For train.en and train.fr give `train ... en fr`.
#   The variable MINUTES is the time of the three trainings together (by default 105 on all cores). The translations come on top.
#   An interrupted script continues if you start it again with the same arguments.
set -euo pipefail
train=$1 dev=$2 test=$3 src=$4 tgt=$5 minutes=${MINUTES:-105}
shift 5

# The two teachers differ only in their seeds. They train at the same time, and each has half of the processor.
cores=$(getconf _NPROCESSORS_ONLN)
each=(--max-time $((minutes * 60 / 3))s --threads $(((cores + 1) / 2)))
nmtalign prep "$train.$src" "$train.$tgt" --dev "$dev.$src" "$dev.$tgt" --subwords -o data-teachers/
nmtalign train data-teachers/ -o teacher1/ "${each[@]}" "$@" --seed 1 --quiet &
trap 'kill $! && wait $! || true' EXIT # if the script ends early, the first teacher saves its state
nmtalign train data-teachers/ -o teacher2/ "${each[@]}" "$@" --seed 2
wait $!
trap - EXIT
nmtalign translate -m teacher1/ -m teacher2/ "$train.$src" --beam 5 -o "taught.$tgt" --resume

# The student learns from each sentence twice: from its real translation, and from that of its teachers.
awk 1 "$train.$src" "$train.$src" > "twice.$src" # like cat, but each file ends with a line break
awk 1 "$train.$tgt" "taught.$tgt" > "twice.$tgt"
nmtalign prep "twice.$src" "twice.$tgt" --dev "$dev.$src" "$dev.$tgt" --vocabulary-from data-teachers/ -o data-student/
nmtalign train data-student/ -o student/ --max-time $((minutes * 60 * 2 / 3))s "$@"

nmtalign translate -m teacher1/ < "$test.$src" > "out-teacher1.$tgt"
nmtalign translate -m teacher1/ -m teacher2/ < "$test.$src" > "out-teachers.$tgt"
nmtalign translate -m student/ < "$test.$src" > "out-student.$tgt"
nmtalign translate -m student/ -m teacher1/ -m teacher2/ < "$test.$src" > "out-all.$tgt"
nmtalign score teacher1="out-teacher1.$tgt" teachers="out-teachers.$tgt" student="out-student.$tgt" all="out-all.$tgt" \
    -r "$test.$tgt"
# The score that publications report for Multi30k: BLEU of lowercased, tokenised text.
nmtalign score student="out-student.$tgt" all="out-all.$tgt" -r "$test.$tgt" --metrics multi-bleu --set lowercase=true
