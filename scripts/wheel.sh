#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel of the Python package from a build of the library, and audits it: scripts/wheel.sh BUILD WHEELS
# The audited wheel brings along the shared libraries that it needs beyond glibc, and its tag names the oldest glibc it
# runs with. PYTHON (python3) selects the interpreter: 3.11 gives a wheel for 3.11, a later one a wheel for 3.12 and later.
set -euo pipefail
build=$(realpath "$1")
wheels=$(realpath -m "$2")
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
tag=$(PYTHON=$python scripts/python-env.sh --tag)
tools=$(PYTHON=$python scripts/python-env.sh python/requirements-build.txt "$build/python/tools-$tag")
stage=$build/python/stage
log=$build/python/wheel-$tag.log

fail() {
  tail -n 40 "$log" >&2
  echo "wheel: $* (all output: $log)" >&2
  exit 1
}

rm -rf "$build/python/unaudited-$tag"
cmake --install "$build" --prefix "$stage" --strip > "$log" || fail "installing the library failed"
PATH=$tools/bin:$PATH onehop_ROOT=$stage "$tools/bin/python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir="$build/python/{wheel_tag}" -w "$build/python/unaudited-$tag" ./python >> "$log" 2>&1 || fail "building the wheel failed"
mkdir -p "$wheels"
PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --strip -w "$wheels" "$build/python/unaudited-$tag"/onehop-*.whl >> "$log" 2>&1 ||
  fail "auditing the wheel failed"
sed -n 's/^Fixed-up wheel written to //p' "$log" | tail -1
