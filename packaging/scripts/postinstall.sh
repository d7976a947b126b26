#!/bin/sh
# After the package's files are in place. $1 is "configure" (deb), or how many versions are installed (rpm).
# It starts nothing, and restarts nothing: when a node restarts is for its operator to say.
set -eu
case ${1:-} in configure | [12]) ;; *) exit 0 ;; esac

# The account of MySQL's packages: agent and mysqld are one. A host that only keeps the log may have no MySQL.
getent group mysql >/dev/null || groupadd --system mysql
getent passwd mysql >/dev/null ||
	useradd --system --gid mysql --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin --comment "MySQL Server" mysql
# As the unit would make it, so that "quorate config check" finds it before the first start.
[ -e /var/lib/quorate ] || install -d -m 751 -o mysql -g mysql /var/lib/quorate

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	if systemctl --quiet is-active quorate.service; then
		echo "quorate: the agent that runs is the old one until you restart it: one node after the other" \
			"(/usr/share/doc/quorate/docs/operations.md, Upgrading quorate)"
	fi
	if systemctl --quiet is-active quorate-archive.service; then
		echo "quorate: the archive that runs is the old one until you run systemctl restart quorate-archive"
	fi
fi
