#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# uninstall_test.sh BUILD_DIR WORK_DIR: installs the build and removes it again, as `make uninstall` does.
set -euo pipefail

build=$1
prefix="$2/a prefix"
uninstall() {
  "$CMAKE" -DMANIFEST="$2" -DPREFIX="$1" -P "$(dirname "$0")/../../cmake/Uninstall.cmake"
}
rm -rf "$2"
mkdir -p "$prefix/include" "$prefix/share/onehop"
touch "$prefix/include/other.h" "$prefix/share/onehop/mine"
find "$prefix" -type f | sort > "$2/before"
"$CMAKE" --install "$build" --prefix "$prefix" > "$2/install.log"
# A copy: in the build tree it lists what the user installed.
mv "$build/install_manifest.txt" "$2/manifest"
[[ -x $prefix/bin/onehop ]]

if uninstall "$2/elsewhere" "$2/manifest" 2> "$2/refused"; then
  echo "uninstalling from another prefix was not refused" >&2
  exit 1
fi
# CMake breaks lines anywhere.
tr -s ' \n' ' ' < "$2/refused" | grep -q "which is not in"
uninstall "$prefix" "$2/manifest"
find "$prefix" -type f -o -type l | sort | diff "$2/before" -
left=$(find "$prefix" -type d -name '*onehop*' ! -path "$prefix/share/onehop")
[[ -z $left ]] || {
  echo "folders of ours are left: $left" >&2
  exit 1
}
if uninstall "$prefix" "$2/manifest" 2> /dev/null; then
  echo "uninstalling twice was not refused" >&2
  exit 1
fi
