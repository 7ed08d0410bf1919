#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment with the packages of a requirements file, and prints its directory:
#   scripts/python-env.sh REQUIREMENTS DIRECTORY
#   scripts/python-env.sh --tag       prints the tag of the interpreter, such as cp311
# PYTHON (python3) is its interpreter. One that has been made from the same file with the same interpreter is kept.
set -euo pipefail

python=${PYTHON:-python3}
if [[ $1 == --tag ]]; then
  exec "$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])'
fi
requirements=$1
directory=$2

fail() {
  echo "python-env: $*" >&2
  exit 1
}

version=$("$python" -c 'import sys; print(*sys.version_info[:2], sep="."); sys.exit(sys.version_info < (3, 11))') ||
  fail "$python is Python ${version:-?}; onehop needs 3.11 or later (set PYTHON)"
stamp=$directory/made-from
wanted=$(printf '%s %s\n' "$(command -v "$python")" "$version" && cat "$requirements")
if [[ $(cat "$stamp" 2> /dev/null) != "$wanted" ]]; then
  log=$directory.log
  mkdir -p "$(dirname "$directory")"
  rm -rf "$directory"
  if ! { "$python" -m venv "$directory" &&
    "$directory/bin/python" -m pip install --disable-pip-version-check -r "$requirements"; } > "$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "the packages of $requirements could not be installed"
  fi
  printf '%s\n' "$wanted" > "$stamp"
fi
echo "$directory"
