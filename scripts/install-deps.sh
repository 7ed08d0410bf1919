#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that building, testing and developing onehop needs: the one list of them.
#   scripts/install-deps.sh           install what is missing (as root, or through sudo)
#   scripts/install-deps.sh build     only what building the library and the command needs
#   scripts/install-deps.sh test      only what building and the tests need
#   scripts/install-deps.sh docs      only what the HTML pages need
#   scripts/install-deps.sh aarch64   everything, and what scripts/aarch64.sh needs besides
#   scripts/install-deps.sh --check   only say what is missing of everything; exit 1 if anything is
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
lint=(clang-format clang-tidy shellcheck flake8)
fuzz=(clang llvm libclang-rt-dev)
coverage=(gcovr)
docs=(doxygen)
aarch64=(g++-aarch64-linux-gnu qemu-user)

fail() {
  echo "install-deps: $*" >&2
  exit 1
}

everything=("${build[@]}" "${test[@]}" "${bench[@]}" "${lint[@]}" "${fuzz[@]}" "${coverage[@]}")
case "${1-}" in
  "" | --check) wanted=("${everything[@]}") ;;
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  docs) wanted=("${docs[@]}") ;;
  aarch64) wanted=("${everything[@]}" "${aarch64[@]}") ;;
  *) fail "unknown argument '$1'; there are build, test, docs, aarch64 and --check" ;;
esac
command -v dpkg-query > /dev/null ||
  fail "this is not a Debian system; install the equivalents of: ${wanted[*]}"

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
