#!/bin/sh
# Before the package's files go. $1 is "remove" (deb), or 0 (rpm), if no other version takes their place.
# Nothing that the package brought runs on: a full backup is broken off, the agent hands over, and stops mysqld in order.
set -eu
case ${1:-} in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	systemctl stop quorate-backup.timer quorate-backup.service || true
	systemctl disable --now quorate-backup.timer quorate-archive.service quorate.service || true
fi
