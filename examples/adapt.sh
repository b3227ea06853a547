#!/usr/bin/env bash
# Fine-tunes a model on another domain, in two commands, and scores both domains before and after.
# Usage: adapt.sh MODEL TRAIN DEV TEST OLD SRC TGT [options of `nmtalign train`]
#   TRAIN, DEV and TEST are texts of the new domain, and OLD is a test text of the domain that the model knows: file
#   names without the language. For train.en and train.fr give `train` ... `en fr`.
#   With KEEP=TEXT the training also reads this text of the old domain, so that the model forgets less of it.
set -euo pipefail
model=$1 train=$2 dev=$3 test=$4 old=$5 src=$6 tgt=$7
shift 7

for language in "$src" "$tgt"; do
    # awk 1 is like cat, but each file ends with a line break.
    awk 1 "$train.$language" ${KEEP:+"$KEEP.$language"} > "adapted-train.$language"
done
nmtalign prep "adapted-train.$src" "adapted-train.$tgt" --dev "$dev.$src" "$dev.$tgt" --vocabulary-from "$model" -o data-adapted/
nmtalign train data-adapted/ -o adapted/ --init-from "$model" "$@"

for text in "$test" "$old"; do
    nmtalign translate -m "$model" < "$text.$src" > "before.$tgt"
    nmtalign translate -m adapted/ < "$text.$src" > "after.$tgt"
    echo "$text:"
    nmtalign score before="before.$tgt" after="after.$tgt" -r "$text.$tgt" --metrics bleu
done
nmtalign export adapted/ -o adapted-slim/ --weights int8 # a quarter of the size, without the state of the training
