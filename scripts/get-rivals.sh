#!/bin/sh
# get-rivals.sh DESTDIR: put what quorate-lab compares quorate with into DESTDIR,
# each in a private prefix of its own:
#
#   DESTDIR/mariadb   MariaDB with galera-4 and what its state transfer calls (Debian 12)
#   DESTDIR/router    mysqlrouter (Debian sid, as the MySQL of get-mysql.sh)
#   DESTDIR/sysbench  sysbench 1.0 (Debian 12)
#
# The programs are to be called as PREFIX/bin/NAME: these start the unpacked
# program with the dynamic loader and the libraries that it came with, so
# nothing outside of DESTDIR is read or written, whatever the system has.
# A prefix is called by its absolute path and cannot be moved.
#
# apt does the downloading with a state of its own and checks Debian's
# signatures against the archive keyring, as in get-mysql.sh. Root is not
# needed. A prefix appears by one rename; one that is there is left alone.
#
# Environment:
#   QUORATE_DEBIAN_MIRROR  archive URI to use instead of the machine's own
set -eu

tries_max=4 # bound on whole tries of "apt update" and of a download
layout=1    # first word of the stamps: raise it when what is laid out changes

say() { printf 'get-rivals: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[ $# -eq 1 ] && [ -n "$1" ] || die "usage: $0 DESTDIR"
mkdir -p -- "$1"
dest=$(cd -- "$1" && pwd)
work=$dest/.tmp

# stamp NAME: the version of a prefix that is there, nothing otherwise.
stamp() {
	[ -f "$dest/$1/.quorate-rival" ] && [ "$(cut -d' ' -f1 <"$dest/$1/.quorate-rival")" = "$layout" ] &&
		cut -d' ' -f2- <"$dest/$1/.quorate-rival"
}
have_all() { stamp mariadb >/dev/null && stamp router >/dev/null && stamp sysbench >/dev/null; }
list() { for p in mariadb router sysbench; do say "$dest/$p has $(stamp "$p")"; done; }

if have_all; then list; exit 0; fi
for tool in apt-get dpkg-deb flock; do
	command -v "$tool" >/dev/null || die "$tool is missing: this script needs a Debian or Ubuntu machine"
done
exec 9<"$dest" # one run at a time; the loser finds the winner's work
flock 9
if have_all; then list; exit 0; fi

keyring=
for k in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
	if [ -r "$k" ]; then keyring=$k; break; fi
done
[ -n "$keyring" ] || die "no Debian archive keyring in /usr/share/keyrings: install the package debian-archive-keyring"

# mirrors prints the archive URIs worth trying: the machine's own apt sources.
mirrors() {
	if [ -n "${QUORATE_DEBIAN_MIRROR:-}" ]; then
		printf '%s\n' "$QUORATE_DEBIAN_MIRROR"
		return
	fi
	apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk '$2 == "main" && $1 !~ /security/ && !seen[$1]++ { print ($1 ~ /\/debian\/?$/ ? 0 : 1), $1 }' |
		sort -s -k1,1 | cut -d' ' -f2
}

rm -rf -- "$work"
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

# apt ARGS...: one run with the state in $state; its chatter is shown on failure.
apt() { LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -y -c "$state/apt.conf" "$@" >"$state/apt.log" 2>&1 9>&-; }

# try WHAT ARGS...: apt with bounded retries.
try() {
	what=$1
	shift
	n=1
	until apt "$@"; do
		say "$what failed (try $n of $tries_max)"
		if [ "$n" -ge "$tries_max" ]; then
			sed 's/^/  apt: /' "$state/apt.log" | tail -n 15 >&2
			return 1
		fi
		sleep $((n * 2))
		n=$((n + 1))
	done
}

# open_suite SUITE: a state directory with the suite's package list.
open_suite() {
	state=$work/$1
	[ -d "$state" ] && return
	mkdir -p "$state/none" "$state/log" "$state/state/lists/partial" "$state/cache/archives/partial"
	: >"$state/status"
	: >"$state/sources.list"
	# The machine's apt configuration stays in force (proxies, certificates)
	# except for hooks that would act on the system.
	cat >"$state/apt.conf" <<CONF
#clear APT::Update;
#clear DPkg;
#clear APT::NeverAutoRemove;
APT::Sandbox::User "";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Default-Release "";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Retries "3";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-large::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-hidpi::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi::DefaultEnabled "false";
Dir::State "$state/state";
Dir::State::Lists "$state/state/lists";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
Dir::Cache::archives "$state/cache/archives";
Dir::Log "$state/log";
Dir::Etc::sourcelist "$state/sources.list";
Dir::Etc::sourceparts "$state/none";
Dir::Etc::preferences "$state/none/preferences";
Dir::Etc::preferencesparts "$state/none";
CONF
	for uri in $(mirrors); do
		say "reading the package list of $1 from $uri"
		printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$1" >"$state/sources.list"
		try "reading the package list" update -o APT::Update::Error-Mode=any && return
	done
	die "no usable Debian archive in this machine's apt sources: set QUORATE_DEBIAN_MIRROR to the URI of one"
}

# wrappers ROOT PREFIX: ROOT/bin/NAME for each program, for the final PREFIX.
wrappers() {
	loader=
	for l in "$1"/usr/lib/*-linux-gnu*/ld-linux*.so.* "$1"/lib/*-linux-gnu*/ld-linux*.so.*; do
		if [ -x "$l" ]; then loader=${l#"$1"}; break; fi
	done
	[ -n "$loader" ] || die "the packages of $2 hold no dynamic loader"
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
	name=$1 suite=$2 program=$3 needs=$4 keep=$5
	shift 5
	if stamp "$name" >/dev/null; then return; fi
	[ ! -e "$dest/$name" ] || [ -f "$dest/$name/.quorate-rival" ] || die "$dest/$name exists and was not made by this script: remove it"
	open_suite "$suite"
	rm -f "$state"/cache/archives/*.deb
	say "downloading $* and the libraries they need"
	try "the download" install --download-only --no-install-recommends "$@" || die "cannot download $*"
	all=$work/all root=$work/$name
	rm -rf "$all"
	mkdir -p "$all" "$root"
	for deb in "$state"/cache/archives/*.deb; do
		dpkg-deb -x "$deb" "$all" || die "cannot unpack $(basename "$deb")"
	done
	for pattern in $keep usr/lib/*-linux-gnu* lib/*-linux-gnu*; do
		for path in "$all"/$pattern; do
			[ -e "$path" ] || continue
			to=$root/$(dirname "${path#"$all"/}")
			mkdir -p "$to"
			mv "$path" "$to/"
		done
	done
	for junk in perl perl5 perl-base gconv systemd security; do
		rm -rf -- "$root"/usr/lib/*-linux-gnu*/"$junk"
	done
	chmod -R u+rwX,go+rX,go-w "$root"
	for need in $needs; do
		[ -e "$root/$need" ] || die "the packages of $name hold no $need"
	done
	wrappers "$root" "$dest/$name"
	[ -e "$root/bin/$program" ] || die "the packages hold no $program"
	rm -rf -- "${dest:?}/$name"
	mv -- "$root" "$dest/$name"
	version=$("$dest/$name/bin/$program" --version | sed -n '1s/.*[^0-9.]\([0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*[^ ]*\).*/\1/p')
	[ -n "$version" ] || die "the unpacked $program does not start"
	printf '%s %s\n' "$layout" "$version" >"$dest/$name/.quorate-rival"
	say "$dest/$name has $version"
}

prefix sysbench bookworm sysbench usr/share/sysbench/oltp_common.lua 'usr/bin/sysbench usr/share/sysbench' sysbench
prefix mariadb bookworm mariadbd 'usr/lib/galera/libgalera_smm.so usr/bin/wsrep_sst_rsync usr/bin/rsync' \
	'usr/sbin/mariadbd usr/bin/mariadb* usr/bin/my_print_defaults usr/bin/mbstream usr/bin/wsrep_* usr/bin/galera* usr/bin/garb* usr/bin/rsync usr/bin/socat bin/ss usr/bin/ss usr/bin/lsof usr/lib/galera usr/lib/libgalera_smm.so usr/lib/mysql usr/share/mysql' \
	mariadb-server-core mariadb-server galera-4 mariadb-client-core mariadb-backup rsync socat lsof iproute2
prefix router sid mysqlrouter usr/lib/mysqlrouter/plugin/metadata_cache.so 'usr/bin/mysqlrouter* usr/sbin/mysqlrouter* usr/lib/mysql-router usr/lib/mysqlrouter' mysql-router
