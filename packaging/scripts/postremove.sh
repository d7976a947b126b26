#!/bin/sh
# After the package's files are gone. $1 is "remove" or "purge" (deb), or 0 (rpm). Data, configuration and keys
# are not the package's: it deletes none of them.
set -eu
case ${1:-} in remove | purge | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
for left in /var/lib/quorate /etc/quorate; do
	if [ -n "$(ls -A "$left" 2>/dev/null)" ]; then
		echo "quorate: $left is left as it is: the data, or the configuration and key, of a node. Delete it yourself"
	fi
done
