#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD_DIR WORK_DIR: see CMakeLists.txt. Needs a build in BUILD_DIR; keeps WORK_DIR for
# inspection.
set -euo pipefail

build=$1
work=$2
consumer=$(cd "$(dirname "$0")/../consumer" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$work"
mkdir -p "$work"

"$CMAKE" --install "$build" --prefix "$work/first" > "$work/install.log"
# Moved before use: an installed tree must not depend on where it was made.
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libonehop.a -type f)")

if grep -rlF -e "$source" -e "$build" "$prefix" --include='*.cmake' --include='*.pc' --include='*.h'; then
  echo "the files above name the source or build directory" >&2
  exit 1
fi
version=$("$prefix/bin/onehop" --version)

expect_version() {
  local said
  said=$("$@")
  echo "$(basename "$1"): $said"
  [[ $version == *"${said%% *}"* ]] || {
    echo "the installed command says '$version', $1 says '$said'" >&2
    exit 1
  }
}

# The program needs the shared library by its soname, which includes the minor version before 1.0, or not at
# all.
expect_needed() {
  local count
  count=$(readelf -d "$1" | grep -cE 'NEEDED.*\[libonehop\.so\.(0\.[0-9]+|[1-9][0-9]*)\]' || true)
  ((count == $2)) || {
    echo "$1 needs libonehop.so.VERSION $count times, not $2" >&2
    exit 1
  }
}

for kind in static shared; do
  # The shared library needs none of the packages that the static one is linked with.
  without=()
  [[ $kind == static ]] || without=(-DCMAKE_DISABLE_FIND_PACKAGE_{fmt,spdlog,PkgConfig}"=ON")
  "$CMAKE" -S "$consumer" -B "$work/$kind" -DCMAKE_PREFIX_PATH="$prefix" -DCONSUMER_KIND=$kind "${without[@]}" > "$work/$kind.log"
  "$CMAKE" --build "$work/$kind" >> "$work/$kind.log"
  expect_version "$work/$kind/consumer_cc"
  expect_version "$work/$kind/consumer_c"
  expect_needed "$work/$kind/consumer_cc" "$([[ $kind == shared ]] && echo 1 || echo 0)"
done

# Device headers, by themselves and with installed files only.
if [[ -n ${NVCC:-} ]]; then
  for header in "$prefix"/include/onehop/device/{,wire/}*.cuh; do
    echo "#include <${header#"$prefix/include/"}>" > "$work/device.cu"
    "$NVCC" -std=c++20 -arch=sm_80 -I "$prefix/include" --Werror all-warnings -c "$work/device.cu" -o "$work/device.o"
  done
fi

# pkg-config quotes special characters in paths, such as spaces, for a shell.
flags() {
  PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@" onehop
}
eval "compile=($(flags --cflags))"
eval "link=($(flags --libs))"
eval "link_static=($(flags --static --libs))"
strict=(-std=c99 -pedantic -Wall -Wextra -Werror)
# shellcheck disable=SC2154  # the arrays that eval fills
{
  "$CC" "${strict[@]}" "${compile[@]}" "$consumer/consumer.c" -o "$work/pkgconfig_shared" "${link[@]}"
  "$CC" "${strict[@]}" "${compile[@]}" "$consumer/consumer.c" -o "$work/pkgconfig_static" "${link_static[@]}"
  "$CXX" -std=c++20 "${compile[@]}" "$consumer/consumer.cc" -o "$work/pkgconfig_shared_cc" "${link[@]}"
  "$CXX" -std=c++20 "${compile[@]}" "$consumer/consumer.cc" -o "$work/pkgconfig_static_cc" "${link_static[@]}"
}
for program in pkgconfig_shared pkgconfig_shared_cc; do
  LD_LIBRARY_PATH=$libdir expect_version "$work/$program"
  expect_needed "$work/$program" 1
done
for program in pkgconfig_static pkgconfig_static_cc; do
  expect_version "$work/$program"
  expect_needed "$work/$program" 0
done
