#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the host backend for 64-bit Arm with Debian's cross compiler, in build/aarch64, and runs it under qemu-user.
#   scripts/aarch64.sh         the library, and some tests of each kind, as in .ci/run (docs/aarch64.md)
#   scripts/aarch64.sh --all   everything that can be built, and all tests that can run: about an hour on 2 cores
# The libraries come from Debian, too, but are unpacked into build/aarch64-sysroot and not installed: this system need
# not be told of another architecture, and nothing on it is upgraded to fit.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1-}" in
  "" | --all) ;;
  *)
    echo "aarch64: unknown argument '$1'; the only one is --all" >&2
    exit 2
    ;;
esac
scripts/install-deps.sh aarch64

libraries=(
  libc6-dev libstdc++6
  libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libasio-dev libhwloc-dev libgtest-dev libgmock-dev
)
sysroot=$PWD/build/aarch64-sysroot
log=build/aarch64-sysroot.log

# apt-get with all its state in a directory of its own: it resolves dependencies as if arm64 were this machine and
# nothing were installed, and only downloads.
unpack_libraries() {
  local own=$PWD/build/aarch64-apt codename
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  rm -rf "$own" "$sysroot"
  mkdir -p "$own/state/lists/partial" "$own/cache/archives/partial" "$sysroot"
  touch "$own/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $codename main" \
    > "$own/sources.list"
  local apt=(
    apt-get -qq -o Dir::State="$own/state" -o Dir::State::status="$own/status" -o Dir::Cache="$own/cache"
    -o Dir::Etc::sourcelist="$own/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User="$(id -un)"
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Acquire::Languages=none
  )
  "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends --download-only "${libraries[@]}"
  local package
  for package in "$own"/cache/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  rm -rf "$own"
  echo "${libraries[*]}" > "$sysroot/unpacked"
}
if [[ $(cat "$sysroot/unpacked" 2> /dev/null) != "${libraries[*]}" ]]; then
  echo "unpacking ${libraries[*]} for arm64"
  mkdir -p build
  unpack_libraries < /dev/null > "$log" 2>&1 || {
    tail -n 20 "$log" >&2
    exit 1
  }
fi

if [[ ${1-} == --all ]]; then
  scripts/build.sh aarch64
  # Not what starts other programs by their paths (cli, install), nor what looks at sources and models only.
  exec ctest --test-dir build/aarch64 --output-on-failure --timeout 900 -LE '^(cli|install|model|lint|cuda)$'
fi

scripts/build.sh aarch64 onehop_shared base_test os_test store_test call_test backend_test group_test conformance_test fault_test

# The reductions are vectors of NEON, and no multiplication is fused with an addition.
instructions=$(aarch64-linux-gnu-objdump -d build/aarch64/src/backend/CMakeFiles/onehop_backend.dir/host/reduce_baseline.cc.o)
for wanted in 'fadd\sv.*\.4s' 'fadd\sv.*\.2d' 'add\sv.*\.16b' 'add\sv.*\.2d' fcvtl fcvtn uxtl xtn; do
  grep -qP "\t$wanted" <<< "$instructions" || {
    echo "aarch64: the reductions have no instruction $wanted: not vectorized?" >&2
    exit 1
  }
done
if grep -P '\tf(n?madd|n?msub|mla|mls)\s' <<< "$instructions" >&2; then
  echo "aarch64: the reductions fuse multiplications and additions: their results differ from x86's" >&2
  exit 1
fi

# Some tests of each kind, in a few minutes. What takes long on an emulator is left to --all.
run() {
  local program=build/aarch64/$1 start=$SECONDS
  timeout 300 scripts/run-aarch64.sh "$program" --gtest_brief=1 --gtest_filter="$2" > "$program.log" 2>&1 || {
    cat "$program.log" >&2
    echo "aarch64: $1 failed" >&2
    exit 1
  }
  echo "${1##*/}: $(sed -n 's/^\[==========\] \(.*\) from .*/\1/p' "$program.log"), $((SECONDS - start)) s"
}
run src/base/base_test '*'
run src/os/os_test '*'
run src/store/store_test '*-StoreDeadlines*:*Attack*:*AfterFiveSeconds*'
run src/call/call_test '*'
# Without how GPU algorithms divide their work, which are integers on any machine.
run src/backend/backend_test '*-*TheOutputMayBeAnySource*:*TheSecondOutput*:DeviceAlgorithms*:Push*:Channel*:CopyEngine*:PointToPoint*'
run src/group/group_test 'Mesh*:Messages*:IpcChannel*:Tuning*:Watched*:Pool*'
run tests/conformance_test '*HostProcesses3-*KeepRanksInStep*:*KeepsRanksInStep*:*CarriesMegabytes*'
run tests/fault/fault_test 'StrayChild*:LateReader*:Transfers*'
# Pages of 64 KiB, which Grace's kernels often have.
export QEMU_PAGESIZE=65536
run src/os/os_test '*-*Futex*'
run tests/conformance_test 'AllReduce.*Symmetric*/HostProcesses2:Collectives.*Symmetric*/HostThreads3:SendRecv.*/HostProcesses2'
