#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and audits the wheel: build_wheel.sh BUILD WHEELS. Skipped where the tools for it cannot be installed, except in CI.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$2"
"$root/tests/python/environment.sh" "$root/python/requirements-build.txt" "$1/python/tools-$("$root/scripts/python-env.sh" --tag)"
wheel=$("$root/scripts/wheel.sh" "$1" "$2")
unzip -l "$wheel" 2> /dev/null || python3 -m zipfile -l "$wheel"
[[ $(basename "$wheel") == onehop-*-manylinux_*.whl ]]
