#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A shared library exports what is ours and nothing of the libraries inside it, and has the name that programs ask for.
#   scripts/check-exports.sh LIBRARY SONAME
set -euo pipefail

(($# == 2)) || {
  echo "usage: $0 LIBRARY SONAME" >&2
  exit 2
}
library=$1
wanted=$2
ours='^(onehop::|onehop_|(typeinfo|typeinfo name|vtable|VTT) for onehop::)'

# "address type name"; names of C++ have spaces.
exported=$(nm -D --defined-only -C "$library" | cut -d ' ' -f 3-)
foreign=$(grep -vE "$ours" <<< "$exported" || true)
if [[ -n $foreign ]]; then
  echo "$library exports $(wc -l <<< "$foreign") symbols that are not ours (src/onehop.map), such as $(head -n 1 <<< "$foreign")" >&2
  exit 1
fi
for kind in 'onehop::' 'onehop_' 'typeinfo for onehop::Error'; do
  grep -q "^$kind" <<< "$exported" || {
    echo "$library exports nothing that begins with '$kind'" >&2
    exit 1
  }
done
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
if [[ $soname != "$wanted" ]]; then
  echo "$library calls itself '$soname', not '$wanted'" >&2
  exit 1
fi
