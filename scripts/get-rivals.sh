#!/bin/sh
# get-rivals.sh DESTDIR: put what quorate-lab compares quorate with into DESTDIR,
# each in a private prefix of its own:
#
#   DESTDIR/mariadb   MariaDB with galera-4 and what its state transfer calls (Debian 12)
#   DESTDIR/router    mysqlrouter (Debian sid, as the MySQL of get-mysql.sh)
#   DESTDIR/sysbench  sysbench 1.0 (Debian 12)
#   DESTDIR/haproxy   HAProxy (Debian 12)
#
# The programs are to be called as PREFIX/bin/NAME: these start the unpacked
# program with the dynamic loader and the libraries that it came with, so
# nothing outside of DESTDIR is read or written, whatever the system has.
# A prefix is called by its absolute path and cannot be moved.
#
# apt.sh says how they are downloaded. Root is not needed. A prefix appears by one
# rename; one that is there is left alone.
#
# Environment:
#   QUORATE_DEBIAN_MIRROR  archive URI to use instead of the machine's own
set -eu

layout=1 # first word of the stamps: raise it when what is laid out changes

me=get-rivals
# shellcheck source=apt.sh
. "$(dirname -- "$0")/apt.sh"

[ $# -eq 1 ] && [ -n "$1" ] || die "usage: $0 DESTDIR"
mkdir -p -- "$1"
dest=$(cd -- "$1" && pwd)

# stamp NAME: the version of a prefix that is there, nothing otherwise.
stamp() {
	[ -f "$dest/$1/.quorate-rival" ] && [ "$(cut -d' ' -f1 <"$dest/$1/.quorate-rival")" = "$layout" ] &&
		cut -d' ' -f2- <"$dest/$1/.quorate-rival"
}
have_all() { for p in mariadb router sysbench haproxy; do stamp "$p" >/dev/null || return 1; done; }
list() { for p in mariadb router sysbench haproxy; do say "$dest/$p has $(stamp "$p")"; done; }

if have_all; then list; exit 0; fi
need_tools
exec 9<"$dest" # one run at a time; the loser finds the winner's work
flock 9
if have_all; then list; exit 0; fi

work=$(mktemp -d -- "$dest/.tmp.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

# wrappers ROOT PREFIX: ROOT/bin/NAME for each program, for the final PREFIX.
wrappers() {
	find_loader "$1"
	loader=${loader#"$1"}
	libs=
	for d in "$1"/usr/lib/*-linux-gnu* "$1"/lib/*-linux-gnu* "$1"/usr/lib/mysql-router; do
		if [ -d "$d" ]; then libs=$libs${libs:+:}$2${d#"$1"}; fi
	done
	# What the programs look for in places that were compiled into them.
	env=
	for d in "$1"/usr/lib/*-linux-gnu*/libmariadb3/plugin; do
		if [ -d "$d" ]; then env="MARIADB_PLUGIN_DIR=$2${d#"$1"} $env"; fi
	done
	if [ -d "$1/usr/share/sysbench" ]; then env="LUA_PATH='$2/usr/share/sysbench/?.lua;;' $env"; fi
	# A process has the name by which its loader was called: scripts look for it.
	mkdir -p "$1/bin" "$1/loaders"
	for exe in "$1"/usr/sbin/* "$1"/usr/bin/* "$1"/bin/*; do
		base=$(basename "$exe")
		if [ ! -f "$exe" ] || [ -e "$1/bin/$base" ]; then continue; fi
		if [ "$(dd if="$exe" bs=1 skip=1 count=3 2>/dev/null)" = ELF ]; then
			ln -s "..$loader" "$1/loaders/$base"
			printf '#!/bin/sh\n%sexec %s --library-path %s %s "$@"\n' "${env:+export $env
}" "$2/loaders/$base" "$libs" "$2${exe#"$1"}" >"$1/bin/$base"
			chmod 755 "$1/bin/$base"
		else
			ln -s "..${exe#"$1"}" "$1/bin/$base"
		fi
	done
}

# prefix NAME SUITE PROGRAM NEEDS KEEP PACKAGES...: makes DESTDIR/NAME. KEEP are the
# paths that are kept beside the libraries, NEEDS those that have to be there then.
prefix() {
	name=$1 from=$2 program=$3 needs=$4 kept=$5
	shift 5
	if stamp "$name" >/dev/null; then return; fi
	[ ! -e "$dest/$name" ] || [ -f "$dest/$name/.quorate-rival" ] || die "$dest/$name exists and was not made by this script: remove it"
	unpack "$from" "$work/$name" "$kept" "$@"
	for need in $needs; do
		[ -e "$root/$need" ] || die "the packages of $name hold no $need"
	done
	wrappers "$root" "$dest/$name"
	[ -e "$root/bin/$program" ] || die "the packages hold no $program"
	rm -rf -- "${dest:?}/$name"
	mv -- "$root" "$dest/$name"
	version=$("$dest/$name/bin/$program" --version 2>"$work/version" | sed -n '1s/.*[^0-9.]\([0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*[^ ]*\).*/\1/p')
	[ -n "$version" ] || die "the unpacked $program does not start: $(cat "$work/version")" # HAProxy says there how it is used
	printf '%s %s\n' "$layout" "$version" >"$dest/$name/.quorate-rival"
	say "$dest/$name has $version"
}

prefix sysbench bookworm sysbench usr/share/sysbench/oltp_common.lua 'usr/bin/sysbench usr/share/sysbench' sysbench
prefix haproxy bookworm haproxy '' usr/sbin/haproxy haproxy
prefix mariadb bookworm mariadbd 'usr/lib/galera/libgalera_smm.so usr/bin/wsrep_sst_rsync usr/bin/rsync' \
	'usr/sbin/mariadbd usr/bin/mariadb* usr/bin/my_print_defaults usr/bin/mbstream usr/bin/wsrep_* usr/bin/galera* usr/bin/garb* usr/bin/rsync usr/bin/socat bin/ss usr/bin/ss usr/bin/lsof usr/lib/galera usr/lib/libgalera_smm.so usr/lib/mysql usr/share/mysql' \
	mariadb-server-core mariadb-server galera-4 mariadb-client-core mariadb-backup rsync socat lsof iproute2
prefix router sid mysqlrouter usr/lib/mysqlrouter/plugin/metadata_cache.so 'usr/bin/mysqlrouter* usr/sbin/mysqlrouter* usr/lib/mysql-router usr/lib/mysqlrouter' mysql-router
