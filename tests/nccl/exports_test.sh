#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# exports_test.sh LIBRARY LIST [HEADER]: LIBRARY exports the functions of LIST, each with and without the prefix p, and
# nothing else; it is named as NCCL, and LIST has all functions of an installed nccl.h. Without HEADER, looks for one.
set -euo pipefail

library=$1
list=$2
header=${3:-}
fail() {
  echo "exports_test: $*" >&2
  exit 1
}

names=$(grep -oE '^nccl\w+' "$list")
(($(wc -l <<< "$names") > 90)) || fail "$list has few names"
wanted=$({ echo "$names"; while read -r name; do echo "p$name"; done <<< "$names"; echo onehop_nccl_marker; } | LC_ALL=C sort)
exported=$(nm -D --defined-only "$library" | cut -d ' ' -f 3 | LC_ALL=C sort)
diff <(echo "$wanted") <(echo "$exported") || fail "$library does not export what $list has"
readelf -d "$library" | grep -q 'SONAME.*\[libnccl\.so\.2\]' || fail "$library is not named libnccl.so.2"

if [[ -z $header ]]; then
  for each in /usr/include/nccl.h /usr/local/cuda/include/nccl.h /usr/{local/,}lib/python3*/*-packages/nvidia/nccl/include/nccl.h; do
    [[ ! -e $each ]] || header=$each
  done
fi
[[ -n $header ]] || exit 0
missing=$(grep -ohE '\bnccl[A-Z]\w*\(' "$header" | tr -d '(' | sort -u | while read -r name; do
  grep -qE "\bp$name\(" "$header" && ! grep -qx "$name" <<< "$names" && echo "$name"
done) || true
[[ -z $missing ]] || fail "$list lacks functions of $header: $missing"
