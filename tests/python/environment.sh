#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/python-env.sh, for tests: where packages cannot be installed, the test says so and is skipped. CI must have them.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if ! message=$("$root/scripts/python-env.sh" "$@" 2>&1); then
  [[ -z ${CI-} ]] || { echo "$message" >&2; exit 1; }
  echo "$message" >&2
  exit 77
fi
