#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clean_root_test.sh DIR_OF_PACKAGES WORK_DIR: installs the packages with apt in a Debian that has nothing
# else, and uses them there. WORK_DIR/root may be an earlier debootstrap. This takes minutes and needs the
# network, so it runs only with ONEHOP_CLEAN_ROOT=1. Prints "skipped: " and the reason where it cannot run.
set -euo pipefail

packages=$1
work=$2
consumer=$(cd "$(dirname "$0")/../consumer" && pwd)
mirror=${ONEHOP_DEBIAN_MIRROR:-http://deb.debian.org/debian}
skip() {
  echo "skipped: $*"
  exit 0
}
[[ ${ONEHOP_CLEAN_ROOT:-} == 1 ]] || skip "it takes minutes and the network; ONEHOP_CLEAN_ROOT=1 asks for it"
((EUID == 0)) || skip "only root can change the root directory"
command -v debootstrap > /dev/null || skip "there is no debootstrap here; apt-get install debootstrap"
unshare --mount true 2> /dev/null || skip "mount namespaces are not permitted here"

root=$work/root
mkdir -p "$work"
if [[ ! -x $root/usr/bin/apt-get ]]; then
  rm -rf "$root"
  debootstrap --variant=minbase bookworm "$root" "$mirror" > "$work/debootstrap.log" 2>&1 ||
    skip "debootstrap could not make a root from $mirror: $(tail -n 1 "$work/debootstrap.log")"
fi
rm -rf "$root/onehop"
mkdir "$root/onehop"
cp "$packages"/*.deb "$consumer"/consumer.c "$consumer"/consumer.cc "$root/onehop"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cat > "$root/onehop/use" << 'END'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
cd /onehop
apt-get -qq update
apt-get -qq install -y --no-install-recommends ./libonehop[0-9]*.deb ./onehop-tools*.deb ./onehop-nccl*.deb > apt.log
onehop bench all-reduce --ranks 2 --sizes 1K,1M
apt-get -qq install -y --no-install-recommends ./libonehop-dev*.deb g++ pkg-config >> apt.log
c++ -std=c++20 consumer.cc -o shared $(pkg-config --cflags --libs onehop)
cc consumer.c -o static $(pkg-config --static --cflags --libs onehop)
./shared
./static
apt-get -qq purge -y libonehop-dev 'libonehop[0-9]*' onehop-tools onehop-nccl >> apt.log
[[ ! -e /usr/bin/onehop && ! -e /usr/include/onehop ]]
END
unshare --mount bash -c "mount --rbind /proc '$root/proc' && mount --rbind /dev '$root/dev' && exec chroot '$root' bash /onehop/use"
