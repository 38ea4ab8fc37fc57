# shellcheck shell=sh
# Builds the crun of /tree, for a guest which has Debian's beside it: podman takes a runtime
# by its path. crun links to what Debian's links to.
set -eu
cd /tree
./configure CC="ccache gcc"
# First, as crun's makefile lets its sources be compiled while this still writes their headers.
make -j"$(nproc)" -C libocispec libocispec.la
make -j"$(nproc)" git-version.h crun
strip crun
mkdir -p /out/usr/local/lib/cosched
cp crun /out/usr/local/lib/cosched
