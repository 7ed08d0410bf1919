#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gathers what a machine with GPUs needs to run the GPU tests, in a folder of its own:
#   scripts/gpu-bundle.sh DIR [--filter REGEX]        with those tests only
#   TYPES=bf16,f32 scripts/gpu-bundle.sh DIR          with the kernels of those element types only, which builds sooner
# The programs are stripped and need glibc and the C++ runtime only. There, run DIR/gpu-tests.sh --out REPORTS.
set -euo pipefail
if (($# != 1 && $# != 3)); then
  sed -n '/^#!/d; /SPDX/d; /^#/!q; s/^# //p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
"$here/build.sh" portable "-DONEHOP_CUDA_TYPES=${TYPES:-}" cuda_programs onehop_shared
"$here/gpu-tests.sh" --build "$here/../build/portable" --pack "$@"
