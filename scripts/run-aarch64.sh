#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program that was built for 64-bit Arm under qemu-user: scripts/run-aarch64.sh PROGRAM [ARGUMENT...]
#   QEMU_PAGESIZE=65536 gives it pages of 64 KiB
# It is started by the dynamic linker, which is told where the libraries are: with qemu's option -L the program would find
# the sysroot where it opens "/".
# A death test of GoogleTest starts its program once more, by argv[0]. Linux does not start such a program by its path, so
# argv[0] is a script beside it that does the same as this one.
set -euo pipefail

program=$(realpath "$1")
shift
if [[ ! -x $program.qemu ]]; then
  sysroot=$(realpath "$(dirname "$0")/../build/aarch64-sysroot")
  cat > "$program.qemu.$$" << END
#!/bin/sh
exec qemu-aarch64 "$sysroot/lib/ld-linux-aarch64.so.1" --argv0 "\$0" \\
  --library-path "$sysroot/lib/aarch64-linux-gnu:$sysroot/usr/lib/aarch64-linux-gnu" "$program" "\$@"
END
  chmod +x "$program.qemu.$$"
  mv "$program.qemu.$$" "$program.qemu"
fi
exec "$program.qemu" "$@"
