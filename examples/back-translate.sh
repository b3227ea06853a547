#!/usr/bin/env bash
# Back-translation: trains also on text of the target language that has no translation, and measures what it gains.
# Usage: back-translate.sh TRAIN MONO DEV TEST SRC TGT [options of `nmtalign train`]
#   TRAIN, MONO, DEV and TEST are file names without the language. For train.en and train.fr give `train ... en fr`.
#   MONO needs only the language TGT. Without an option such as --max-updates, the last model trains longer because it has more
#   text. An interrupted script continues if you start it again with the same arguments.
set -euo pipefail
train=$1 mono=$2 dev=$3 test=$4 src=$5 tgt=$6
shift 6
subwords=(--vocabulary bpe --size "${SUBWORDS:-4000}")
tag="♻" # a symbol that the text does not contain; every tokeniser keeps it as one token

# A model of the real pairs translates MONO backwards and draws the words at random. At 0.5, a weak model draws fewer wrong words.
nmtalign prep "$train.$tgt" "$train.$src" --dev "$dev.$tgt" "$dev.$src" "${subwords[@]}" -o data-backward/
nmtalign train data-backward/ -o backward/ "$@"
nmtalign translate -m backward/ --set sample=true --set temperature=0.5 "$mono.$tgt" -o "synthetic.$src" --resume

# The tag tells the model which sources are synthetic. An empty line gets no tag, so that prep drops it.
sed "s/^./$tag &/" "synthetic.$src" | awk 1 "$train.$src" - > "both.$src"
awk 1 "$train.$tgt" "$mono.$tgt" > "both.$tgt" # like cat, but each file ends with a line break
nmtalign prep "both.$src" "both.$tgt" --dev "$dev.$src" "$dev.$tgt" "${subwords[@]}" -o data-both/
nmtalign train data-both/ -o both/ "$@"

# For comparison: the real pairs only.
nmtalign prep "$train.$src" "$train.$tgt" --dev "$dev.$src" "$dev.$tgt" "${subwords[@]}" -o data-real/
nmtalign train data-real/ -o real/ "$@"
for model in real both; do
    nmtalign translate -m "$model/" < "$test.$src" > "$model-translated.$tgt"
done
nmtalign score real="real-translated.$tgt" both="both-translated.$tgt" -r "$test.$tgt" --metrics bleu
