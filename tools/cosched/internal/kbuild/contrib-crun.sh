# shellcheck shell=sh
# Builds the crun of /tree, for a guest which has Debian's beside it: podman takes a runtime
# by its path. crun links to what Debian's links to.
set -eu
cd /tree
./configure CC="ccache gcc"
make -j"$(nproc)" git-version.h crun
strip crun
mkdir -p /out/usr/local/lib/cosched
cp crun /out/usr/local/lib/cosched
