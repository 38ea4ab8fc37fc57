#!/bin/bash
# Installs what building and testing need, on Debian 12, Debian 13 and Ubuntu.
#
#   tools/setup.sh           install what is missing; needs root or sudo
#   tools/setup.sh --check   only say what is missing; fails if anything is
#   tools/setup.sh --integration
#                            also what make test-integration needs
#   tools/setup.sh --long    also what make test-long needs: a JDK and PostgreSQL, without a running server
set -euo pipefail

# The Go release that the modules ask for; an older Go from 1.21 on fetches it itself.
go_oldest=21

# A command, or a file if there is no command, and the package that has it.
needs=(
	"gcc gcc" "as binutils" "/usr/include/stdio.h libc6-dev" "make make" "flex flex" "bison bison" "bc bc" "perl perl"
	"python3 python3" "rsync rsync" "xz xz-utils" "patch patch" "cpio cpio"
	"ccache ccache" "quilt quilt" "sparse sparse" "shellcheck shellcheck" "/usr/bin/rst2pseudoxml python3-docutils"
	"qemu-system-x86_64 qemu-system-x86" "stress-ng stress-ng" "hackbench rt-tests"
	"/bin/busybox busybox-static" "tmux tmux" "dbus-daemon dbus-daemon"
	"/usr/include/libelf.h libelf-dev" "/usr/include/openssl/ssl.h libssl-dev"
	"/usr/include/sys/capability.h libcap-dev"
	# To compile for a machine whose SCHED_SMT can be off
	"aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu"
	# To build QEMU with parallel virtual time
	"ninja ninja-build" "dpkg-source dpkg-dev" "pkg-config pkg-config" "/usr/include/glib-2.0/glib.h libglib2.0-dev"
	"/usr/include/libfdt.h libfdt-dev" "/usr/include/zlib.h zlib1g-dev" "/usr/share/seabios/bios-256k.bin seabios"
	"/usr/share/qemu/linuxboot_dma.bin qemu-system-data"
)

# For the kernel's type information, and for images of Debian.
integration=(
	"pahole dwarves" "mmdebstrap mmdebstrap" "/sbin/mke2fs e2fsprogs"
	"/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring"
)
# Programs among whose threads and processes cosched detect finds groups.
long=("javac default-jdk-headless" "pg_ctlcluster postgresql")
case ${1:-} in
--integration) needs+=("${integration[@]}") ;;
--long) needs+=("${long[@]}") ;;
esac

have() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing=()
for need in "${needs[@]}"; do
	read -r what package <<<"$need"
	have "$what" || missing+=("$package")
done
if [ -z "${COSCHED_LINUX_SOURCE:-}" ] && ! have /usr/src/linux-source-6.12.tar.xz; then
	missing+=(linux-source-6.12)
fi
# QEMU's configure makes a Python environment of its own for meson.
if ! have /usr/bin/python3 || ! /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null; then
	missing+=(python3-venv)
fi
# The busybox of the package `busybox` needs shared libraries that a guest does not have.
if have /bin/busybox && have dpkg-query && ! dpkg-query -W busybox-static >/dev/null 2>&1; then
	missing+=(busybox-static)
fi

# go_minor prints the N of Go 1.N, or nothing if there is no Go.
go_minor() {
	! have go || go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p'
}

# fetch_go fetches a newer Go with a Go that is too old to do so by itself, such as
# Debian 12's: toolchains are modules. The new Go goes into the cache, where the
# Makefile finds it.
fetch_go() {
	local version dir cache=${COSCHED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cosched}
	version=$(sed -n 's/^go //p' "$(dirname "$0")/cosched/go.mod")
	echo "fetching Go $version, because Go 1.$minor is too old" >&2
	mkdir -p "$cache"
	dir=$(cd "$cache" && go mod download -json "golang.org/toolchain@v0.0.1-go$version.linux-$(go env GOARCH)" |
		sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	if [ -z "$dir" ]; then
		echo "that failed; install Go 1.$go_oldest or newer yourself" >&2
		exit 1
	fi
	rm -rf "$cache/go.new" "$cache/go"
	cp -r "$dir" "$cache/go.new"
	# The go command does the same with a toolchain that it fetches for itself: a module has
	# no executables, and no go.mod below its own.
	chmod -R u+w "$cache/go.new"
	chmod +x "$cache"/go.new/bin/* "$cache"/go.new/pkg/tool/*/*
	find "$cache/go.new" -name _go.mod -execdir mv {} go.mod \;
	mv "$cache/go.new" "$cache/go"
}

minor=$(go_minor)
if [ -n "$minor" ] && [ "$minor" -lt "$go_oldest" ]; then
	fetch_go
	minor=$go_oldest
fi
need_go=
[ -n "$minor" ] || need_go=yes

if [ "${#missing[@]}" -eq 0 ] && [ -z "$need_go" ]; then
	exit 0
fi

if [ "${1:-}" = --check ]; then
	echo "missing: ${missing[*]}${need_go:+ golang-go}" >&2
	echo "run \`make setup\` as root, or install them yourself" >&2
	exit 1
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "missing: ${missing[*]}${need_go:+ golang-go}; run this as root" >&2
		exit 1
	fi
	root=(sudo)
fi
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@"; }

apt update -q
for package in "${missing[@]}"; do
	if ! apt-cache show "$package" >/dev/null 2>&1; then
		echo "this distribution has no package $package" >&2
		if [ "$package" = linux-source-6.12 ]; then
			echo "Debian 12 has it in its security updates, Debian 13 in its main archive; elsewhere set" >&2
			echo "COSCHED_LINUX_SOURCE to the linux-source-6.12.tar.xz taken out of Debian's package" >&2
		fi
		exit 1
	fi
done
# Unless told otherwise, the package makes a database and starts its server. A test makes its own
# database.
if [[ " ${missing[*]} " == *" postgresql "* ]] && ! [ -e /etc/postgresql-common/createcluster.conf ]; then
	"${root[@]}" mkdir -p /etc/postgresql-common
	"${root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null <<<"create_main_cluster = false"
fi
if [ "${#missing[@]}" -gt 0 ]; then
	apt install -y --no-install-recommends "${missing[@]}"
fi

if [ -n "$need_go" ]; then
	apt install -y --no-install-recommends golang-go
	minor=$(go_minor)
	if [ "$minor" -lt "$go_oldest" ]; then
		fetch_go
	fi
fi
