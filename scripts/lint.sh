#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks of the sources that need no run: layout, include direction, license lines, shell scripts, Python, clang-tidy.
#   scripts/lint.sh [PATH...]     PATH limits clang-tidy (the slow one) to files below it, such as src/store
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p build
git ls-files -z '*.h' '*.cc' '*.c' '*.cuh' '*.cu' | xargs -0 clang-format --dry-run -Werror
echo "clang-format: clean"
scripts/check-includes.py
echo "includes: clean"
scripts/spdx.py --check
echo "license lines: complete"
git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck
echo "shellcheck: clean"
# Names that do not exist, and what is imported or assigned for nothing.
git ls-files -z '*.py' | xargs -0 flake8 --isolated --select=F
echo "flake8: clean"

# clang-tidy reads how files are compiled; nothing needs to be built for that. It reads many files as one, since most of
# its time goes to the headers that they share.
cmake --preset lint > build/lint.configure.log 2>&1 || {
  cat build/lint.configure.log >&2
  exit 1
}
scripts/clang-tidy.py build/lint "$@"
