#!/usr/bin/env bash
# install_test.sh BUILD_DIR WORK_DIR: see CMakeLists.txt. Needs a build in BUILD_DIR; leaves WORK_DIR to look at.
set -euo pipefail

build=$1
work=$2
consumer=$(cd "$(dirname "$0")/../consumer" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$work"
mkdir -p "$work"

"$CMAKE" --install "$build" --prefix "$work/first" > "$work/install.log"
# Moved before use: an installed tree must not know where it was made.
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libonehop.a)")

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

for kind in static shared; do
  "$CMAKE" -S "$consumer" -B "$work/$kind" -DCMAKE_PREFIX_PATH="$prefix" -DCONSUMER_KIND=$kind > "$work/$kind.log"
  "$CMAKE" --build "$work/$kind" >> "$work/$kind.log"
  expect_version "$work/$kind/consumer_cc"
  expect_version "$work/$kind/consumer_c"
  count=$(readelf -d "$work/$kind/consumer_cc" | grep -c 'NEEDED.*libonehop' || true)
  [[ $kind:$count == static:0 || $kind:$count == shared:1 ]] || {
    echo "the $kind consumer needs libonehop.so $count times" >&2
    exit 1
  }
done

# Device headers, by themselves and with nothing but what is installed.
if [[ -n ${NVCC:-} ]]; then
  for header in "$prefix"/include/onehop/device/*.cuh; do
    echo "#include <onehop/device/$(basename "$header")>" > "$work/device.cu"
    "$NVCC" -std=c++20 -arch=sm_80 -I "$prefix/include" --Werror all-warnings -c "$work/device.cu" -o "$work/device.o"
  done
fi

# pkg-config quotes for a shell what is special in a path, such as a space.
flags() {
  PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@" onehop
}
eval "compile=($(flags --cflags))"
eval "link=($(flags --libs))"
eval "link_static=($(flags --static --libs | sed 's/-lonehop/-l:libonehop.a/'))"
strict=(-std=c99 -pedantic -Wall -Wextra -Werror)
# shellcheck disable=SC2154  # the arrays that eval fills
{
  "$CC" "${strict[@]}" "${compile[@]}" "$consumer/consumer.c" -o "$work/pkgconfig_shared" "${link[@]}"
  "$CC" "${strict[@]}" "${compile[@]}" "$consumer/consumer.c" -o "$work/pkgconfig_static" "${link_static[@]}"
}
LD_LIBRARY_PATH=$libdir expect_version "$work/pkgconfig_shared"
expect_version "$work/pkgconfig_static"
