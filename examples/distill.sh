#!/usr/bin/env bash
# A better model of a small corpus: two models translate the training text, and a third model learns from them (distillation).
# Usage: distill.sh TRAIN DEV TEST SRC TGT [options of `nmtalign train`]
#   TRAIN, DEV and TEST are file names without the language. For train.en and train.fr give `train ... en fr`.
#   An interrupted script continues if you start it again with the same arguments.
set -euo pipefail
train=$1 dev=$2 test=$3 src=$4 tgt=$5
shift 5
recipe=(--preset tiny --set order=update-look-generate --set shared_embeddings=true)
large=(--set hidden=256 --set embedding=192 --set maxout=192)
small=(--set hidden=192 --set embedding=128 --set maxout=128)

# The two teachers differ only in their seeds. They train at the same time, and each has half of the processor.
cores=$(getconf _NPROCESSORS_ONLN)
each=("${small[@]}" --set dropout=0.2 --epochs 10 --threads $(((cores + 1) / 2)))
nmtalign prep "$train.$src" "$train.$tgt" --dev "$dev.$src" "$dev.$tgt" --subwords -o data-teachers/
nmtalign train data-teachers/ -o teacher1/ "${recipe[@]}" "${each[@]}" "$@" --seed 1 --quiet &
trap 'kill $! && wait $! || true' EXIT # if the script ends early, the first teacher saves its state
nmtalign train data-teachers/ -o teacher2/ "${recipe[@]}" "${each[@]}" "$@" --seed 2
wait $!
trap - EXIT
nmtalign translate -m teacher1/ -m teacher2/ "$train.$src" --beam 5 -o "taught.$tgt" --resume

# The student learns from each sentence twice: from its real translation, and from that of its teachers.
awk 1 "$train.$src" "$train.$src" > "twice.$src" # like cat, but each file ends with a line break
awk 1 "$train.$tgt" "taught.$tgt" > "twice.$tgt"
nmtalign prep "twice.$src" "twice.$tgt" --dev "$dev.$src" "$dev.$tgt" --vocabulary-from data-teachers/ -o data-student/
nmtalign train data-student/ -o student/ "${recipe[@]}" "${large[@]}" --set dropout=0.25 --epochs 11 "$@"

nmtalign translate -m teacher1/ < "$test.$src" > "out-teacher1.$tgt"
nmtalign translate -m teacher1/ -m teacher2/ < "$test.$src" > "out-teachers.$tgt"
nmtalign translate -m student/ < "$test.$src" > "out-student.$tgt"
nmtalign score teacher1="out-teacher1.$tgt" teachers="out-teachers.$tgt" student="out-student.$tgt" -r "$test.$tgt" \
    --metrics multi-bleu --set lowercase=true
