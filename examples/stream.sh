#!/usr/bin/env bash
# A script that starts nmtalign once, writes one line to it, and waits for the translation before it writes the next.
# Usage: stream.sh MODEL [options of `nmtalign translate`] < TEXT
set -euo pipefail
model=$1
shift

coproc TRANSLATOR { exec nmtalign translate -m "$model" --quiet "$@"; }
pid=$TRANSLATOR_PID
while IFS= read -r line; do
    printf '%s\n' "$line" >&"${TRANSLATOR[1]}"
    IFS= read -r translation <&"${TRANSLATOR[0]}"
    printf '%s -> %s\n' "$line" "$translation"
done
exec {TRANSLATOR[1]}>&- # nmtalign ends when its input ends
wait "$pid"
