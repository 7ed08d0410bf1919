#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test that carries the ctest label `cuda` on a machine with GPUs, and reports what happened.
#   scripts/gpu-tests.sh --out REPORTS                in a checkout whose build/release was built there
# Or where nothing can be built or installed, with programs that were built elsewhere (preset `portable`):
#   scripts/gpu-bundle.sh DIR                         there: makes a folder of its own
#   DIR/gpu-tests.sh --out REPORTS [--commit C]       on the machine with GPUs
# See --help for the rest.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu_tests.py" "$@"
