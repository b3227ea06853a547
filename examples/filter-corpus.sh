#!/usr/bin/env bash
# Filters a noisy corpus (crawled, or aligned by machine) with two models of a small corpus that you trust.
# Usage: filter-corpus.sh TRUSTED NOISY DEV SRC TGT SHARE [options of `nmtalign train`]
#   TRUSTED, NOISY and DEV are file names without the language. SHARE (0 to 1) is the part of NOISY that is kept.
set -euo pipefail
trusted=$1 noisy=$2 dev=$3 src=$4 tgt=$5 share=$6
shift 6
here=$(dirname -- "${BASH_SOURCE[0]}")

# Two models of the trusted corpus, one for each direction.
nmtalign prep "$trusted.$src" "$trusted.$tgt" --dev "$dev.$src" "$dev.$tgt" --subwords -o "data-$src-$tgt"
nmtalign prep "$trusted.$tgt" "$trusted.$src" --dev "$dev.$tgt" "$dev.$src" --subwords -o "data-$tgt-$src"
nmtalign train "data-$src-$tgt" -o "$src-$tgt" "$@"
nmtalign train "data-$tgt-$src" -o "$tgt-$src" "$@"

# They choose the best pairs of the noisy corpus; then a model of these.
python "$here/filter-corpus.py" "$src-$tgt" "$tgt-$src" "$noisy.$src" "$noisy.$tgt" "$share" filtered
nmtalign prep filtered.source filtered.target --source-language "$src" --target-language "$tgt" \
    --dev "$dev.$src" "$dev.$tgt" --subwords -o data-filtered
nmtalign train data-filtered -o model-filtered "$@"
