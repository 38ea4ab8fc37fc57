#!/bin/busybox sh
# The first process of a guest that lives on a disk: brings the files of this run there
# and hands over to systemd.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /disk
if ! mount -t ext4 /dev/vda /disk; then
	echo "coslab: the guest cannot mount its disk" >/dev/console
	poweroff -f
fi
# Directories that are there already keep their mode and owner.
cd /files && find . ! -type d | cpio -o -H newc 2>/dev/null | (cd /disk && cpio -idu 2>/dev/null)
exec switch_root /disk /sbin/init
