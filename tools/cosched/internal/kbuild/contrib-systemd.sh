# shellcheck shell=sh
# Builds in /build what contrib/systemd changes of /tree, for a guest of Debian.
#
# Both libraries that the programs share have a name of their own, so that all of Debian's
# other programs keep theirs. What the patches do not touch and a guest does without is
# left out.
set -eu
tag=${VERSION%%-*}-cosched
private=lib/x86_64-linux-gnu/systemd
export CC="ccache gcc" LDFLAGS="-Wl,-rpath,/usr/$private"
meson setup /build /tree --prefix=/usr --libdir=lib/x86_64-linux-gnu --sysconfdir=/etc --localstatedir=/var \
	--buildtype=plain -Dc_args=-O2 -Dmode=release -Dversion-tag="$tag" -Dshared-lib-tag="$tag" \
	--auto-features=disabled -Dbpf-framework=disabled -Dpam=enabled -Dseccomp=enabled -Dblkid=enabled \
	-Dstatus-unit-format-default=combined -Ddefault-kill-user-processes=false -Dutmp=false \
	-Dnobody-group=nogroup -Dtty-mode=0600 -Dtests=true
ninja -C /build systemd systemd-executor systemctl systemd-run systemd-analyze test-cgroup-mask test-cgroup-setup

cd /build
put() { # DIRECTORY FILE...
	to=/out/usr/$1
	shift
	mkdir -p "$to"
	strip --strip-unneeded "$@"
	cp "$@" "$to"
}
put lib/systemd systemd systemd-executor
put bin systemctl systemd-run systemd-analyze
put $private "src/core/libsystemd-core-$tag.so" "src/shared/libsystemd-shared-$tag.so"
put lib/systemd/tests/unit-tests test-cgroup-mask test-cgroup-setup
# What test-cgroup-mask loads.
mkdir -p /out/usr/lib/systemd/tests/testdata/units
find /tree/test/units -maxdepth 1 -type f ! -name 'TEST-*' -exec cp -t /out/usr/lib/systemd/tests/testdata/units {} +
