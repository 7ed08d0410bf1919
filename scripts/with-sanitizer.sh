#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command with the sanitizers' settings: scripts/with-sanitizer.sh COMMAND...
set -euo pipefail

# The first finding ends the process, so that a test cannot pass with one.
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}

# GCC 12's TSan cannot place its shadow when the kernel randomizes addresses by more than 28 bits
# (vm.mmap_rnd_bits, 32 on newer kernels). Where a container forbids switching that off, it is left alone.
if setarch -R true 2> /dev/null; then
  exec setarch -R "$@"
fi
exec "$@"
