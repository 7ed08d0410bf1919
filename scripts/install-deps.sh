#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that building, testing and developing onehop needs: the one list of them.
#   scripts/install-deps.sh           install what is missing (as root, or through sudo)
#   scripts/install-deps.sh --check   only say what is missing; exit 1 if anything is
#   scripts/install-deps.sh aarch64   the same as without, and what scripts/aarch64.sh needs besides
set -euo pipefail

build=(
  build-essential cmake ninja-build ccache pkg-config git python3
  libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libasio-dev libhwloc-dev
)
test=(
  libgtest-dev libgmock-dev
  openmpi-bin libopenmpi-dev # also the peer of bench/
  spin
  python3-dev python3-venv # the Python package; its other tools come from PyPI (scripts/python-env.sh)
)
bench=(libbenchmark-dev)
lint=(clang-format clang-tidy shellcheck)
fuzz=(clang llvm libclang-rt-dev)
coverage=(gcovr)
aarch64=()

fail() {
  echo "install-deps: $*" >&2
  exit 1
}

case "${1-}" in
  "" | --check) ;;
  aarch64) aarch64=(g++-aarch64-linux-gnu qemu-user) ;;
  *) fail "unknown argument '$1'; there are --check and aarch64" ;;
esac
command -v dpkg-query > /dev/null ||
  fail "this is not a Debian system; install the equivalents of: ${build[*]} ${test[*]} ${bench[*]}"

wanted=("${build[@]}" "${test[@]}" "${bench[@]}" "${lint[@]}" "${fuzz[@]}" "${coverage[@]}" "${aarch64[@]}")
# dpkg-query fails when it does not know a package at all; what counts is what it prints about the others.
installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2> /dev/null || true)
missing=()
for package in "${wanted[@]}"; do
  [[ $'\n'$installed$'\n' == *$'\n'"$package installed"$'\n'* ]] || missing+=("$package")
done

((${#missing[@]})) || exit 0
[[ ${1-} != --check ]] || fail "missing: ${missing[*]}"

as_root=()
if ((EUID != 0)); then
  command -v sudo > /dev/null || fail "neither root nor sudo; have an administrator run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
echo "installing ${missing[*]}"
# env, because sudo keeps no variables. The index is refreshed once; on a bare machine there is none yet.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } < /dev/null > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail "apt-get could not install: ${missing[*]}"
fi
