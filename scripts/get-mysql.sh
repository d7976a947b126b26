#!/bin/sh
# get-mysql.sh DESTDIR: put a private, unmodified MySQL server into DESTDIR.
#
# For development, the demo and the tests; a production node uses the MySQL
# that its operator installed. The packages are Debian's (suite sid). They need
# a newer libc than older Debian releases have, so they come with their own
# libraries and their own loader, and touch nothing outside DESTDIR:
#
#   LOADER --library-path DESTDIR/usr/lib/TRIPLET DESTDIR/usr/sbin/mysqld ...
#
# apt.sh says how they are downloaded. Root is not needed.
#
# A second run finds the stamp file and ends at once. DESTDIR appears by one
# rename: it is complete or absent.
#
# Environment:
#   QUORATE_DEBIAN_MIRROR  archive URI to use instead of the machine's own
#   QUORATE_DEBIAN_SUITE   suite to use instead of sid
set -eu

suite=${QUORATE_DEBIAN_SUITE:-sid}
packages='mysql-server-core mysql-server mysql-client-core'
# The stamp's first word is the version of what this script lays out: raise it
# when the layout changes, and old copies are made again.
layout=1

me=get-mysql
# shellcheck source=apt.sh
. "$(dirname -- "$0")/apt.sh"

[ $# -eq 1 ] && [ -n "$1" ] || die "usage: $0 DESTDIR"
parent=$(dirname -- "$1")
mkdir -p -- "$parent"
dest=$(cd -- "$parent" && pwd)/$(basename -- "$1")
stamp=$dest/.quorate-mysql

have_stamp() { [ -f "$stamp" ] && [ "$(cut -d' ' -f1 <"$stamp")" = "$layout" ]; }

if have_stamp; then
	say "$dest has MySQL $(cut -d' ' -f2 <"$stamp")"
	exit 0
fi
need_tools "install MySQL 8.0.30+ by other means and set QUORATE_MYSQL_BASE"

# One run at a time (the lock is on the parent directory, so that no lock file
# stays behind); the loser finds the winner's stamp.
exec 9<"$(dirname -- "$dest")"
flock 9
if have_stamp; then
	say "$dest has MySQL $(cut -d' ' -f2 <"$stamp")"
	exit 0
fi
if [ -e "$dest" ] && [ ! -f "$stamp" ] && [ -n "$(ls -A -- "$dest")" ]; then
	die "$dest exists and was not made by this script: remove it or name another directory"
fi

# A name that nobody can have made before: whoever may write in the directory above could bend it.
work=$(mktemp -d -- "$dest.tmp.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

keep='usr/sbin/mysqld usr/bin/mysql usr/bin/mysql?* usr/lib/mysql usr/share/mysql usr/share/mysql-* usr/share/doc/mysql-*'
# shellcheck disable=SC2086 # the list is meant to be split
unpack "$suite" "$work/root" "$keep" $packages
find_loader "$work/root"
libs=$(dirname "$loader")
for need in "$work/root/usr/sbin/mysqld" "$work/root/usr/bin/mysql" "$work/root/usr/bin/mysqlbinlog"; do
	[ -x "$need" ] || die "the packages hold no ${need#"$work/root/"}"
done
[ -n "$(find "$work/root/usr/lib" -name semisync_source.so | head -n 1)" ] || die "the packages hold no semisync_source.so"
line=$("$loader" --library-path "$libs" "$work/root/usr/sbin/mysqld" --no-defaults --version) ||
	die "the unpacked mysqld does not start"
version=$(printf '%s\n' "$line" | sed -n 's/.* Ver \([0-9][0-9.]*\).*/\1/p')
[ -n "$version" ] || die "cannot read a version from: $line"

printf '%s %s %s\n' "$layout" "$version" "$suite" >"$work/root/.quorate-mysql"
rm -rf -- "$dest"
mv -- "$work/root" "$dest"
say "$dest has MySQL $version"
