#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages_test.sh BUILD_DIR WORK_DIR: makes the Debian packages of a build, unpacks them into an empty folder
# and uses them there as a user would. Keeps WORK_DIR for inspection.
set -euo pipefail

build=$1
work=$2
consumer=$(cd "$(dirname "$0")/../consumer" && pwd)
fail() {
  echo "packages_test: $*" >&2
  exit 1
}
for tool in dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" > /dev/null || {
    echo "skipped: there is no $tool here; scripts/install-deps.sh installs it"
    exit 0
  }
done
rm -rf "$work"
mkdir -p "$work/root"
(cd "$build" && "$CPACK" -G DEB -D CPACK_OUTPUT_FILE_PREFIX="$work") > "$work/cpack.log" 2>&1 || fail "cpack: $(tail -n 5 "$work/cpack.log")"

packages=("$work"/*.deb)
names=$(for each in "${packages[@]}"; do dpkg-deb -f "$each" Package; done | sort | paste -sd ' ')
[[ $names =~ ^libonehop-dev\ libonehop[0-9.]+\ onehop-nccl\ onehop-tools$ ]] || fail "the packages are: $names"
for each in "${packages[@]}"; do
  depends=$(dpkg-deb -f "$each" Depends)
  case $(dpkg-deb -f "$each" Package) in
    # dpkg-shlibdeps derives these from the binaries.
    libonehop[0-9]* | onehop-tools | onehop-nccl) [[ $depends == *libc6* && $depends == *libspdlog* && $depends == *libhwloc* ]] || fail "$each depends on '$depends'" ;;
    libonehop-dev) [[ $depends == "libonehop0.1 (= "* || $depends == "libonehop"[1-9]* ]] || fail "$each depends on '$depends'" ;;
  esac
  dpkg-deb -x "$each" "$work/root"
done

root=$work/root/usr
for file in bin/onehop include/onehop/onehop.h lib/libonehop.a share/man/man1/onehop.1 share/bash-completion/completions/onehop \
  share/zsh/vendor-completions/_onehop share/fish/vendor_completions.d/onehop.fish share/doc/onehop-tools/copyright lib/onehop/libonehop_nccl.so; do
  [[ -s $root/$file ]] || fail "no package has /usr/$file"
done
# With the libraries of the packages and the system, and nothing from the build.
PATH=$root/bin:$PATH LD_LIBRARY_PATH=$root/lib onehop bench all-reduce --device host --ranks 2 --sizes 1K --iters 3 > "$work/bench.log" ||
  fail "the packaged command: $(cat "$work/bench.log")"
grep -q "$build" "$root/bin/onehop" && fail "the packaged command names the build tree"

flags() {
  PKG_CONFIG_PATH=$root/lib/pkgconfig pkg-config "$@" onehop
}
eval "shared=($(flags --cflags --libs))"
eval "static=($(flags --static --cflags --libs))"
# shellcheck disable=SC2154  # the arrays that eval fills
{
  "$CXX" -std=c++20 "$consumer/consumer.cc" -o "$work/shared" "${shared[@]}"
  "$CC" "$consumer/consumer.c" -o "$work/static" "${static[@]}"
}
LD_LIBRARY_PATH=$root/lib "$work/shared" > /dev/null || fail "a program with the packaged shared library failed"
"$work/static" > /dev/null || fail "a program with the packaged archive failed"

# The completion for bash, as bash calls it.
completes_to() {
  local wanted=$1 completed
  shift
  completed=$(
    # shellcheck source=/dev/null
    source "$root/share/bash-completion/completions/onehop"
    # shellcheck disable=SC2034  # read by _onehop
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _onehop
    echo "${COMPREPLY[*]}"
  )
  [[ $completed == "$wanted" ]] || fail "'$*' is completed to '$completed', not '$wanted'"
}
completes_to --json onehop bench --jso
completes_to "all-reduce all-gather all-to-all all-to-all-v" onehop bench all-
completes_to "all all-reduce all-gather all-to-all all-to-all-v" onehop bench all
completes_to "bf16" onehop bench all-reduce --type b
completes_to "doctor" onehop help d
