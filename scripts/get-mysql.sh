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
# apt does the downloading with a state of its own (the system's package lists
# and database are neither read nor written) and checks Debian's signatures
# against the archive keyring. Root is not needed.
#
# A second run finds the stamp file and ends at once. DESTDIR appears by one
# rename: it is complete or absent.
#
# Environment:
#   QUORATE_DEBIAN_MIRROR  archive URI to use instead of the machine's own
#   QUORATE_DEBIAN_SUITE   suite to use instead of sid
set -eu

# Bound on whole tries of "apt update" and of the download, for networks that
# fail for a moment. apt itself continues files that it has in part.
tries_max=4
suite=${QUORATE_DEBIAN_SUITE:-sid}
packages='mysql-server-core mysql-server mysql-client-core'
# The stamp's first word is the version of what this script lays out: raise it
# when the layout changes, and old copies are made again.
layout=1

say() { printf 'get-mysql: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[ $# -eq 1 ] && [ -n "$1" ] || die "usage: $0 DESTDIR"
parent=$(dirname -- "$1")
mkdir -p -- "$parent"
dest=$(cd -- "$parent" && pwd)/$(basename -- "$1")
stamp=$dest/.quorate-mysql
work=$dest.tmp

have_stamp() { [ -f "$stamp" ] && [ "$(cut -d' ' -f1 <"$stamp")" = "$layout" ]; }

if have_stamp; then
	say "$dest has MySQL $(cut -d' ' -f2 <"$stamp")"
	exit 0
fi
for tool in apt-get dpkg dpkg-deb flock; do
	command -v "$tool" >/dev/null || die "$tool is missing: this script needs a Debian or Ubuntu machine; install MySQL 8.0.30+ by other means and set QUORATE_MYSQL_BASE"
done

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

keyring=
for k in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
	if [ -r "$k" ]; then keyring=$k; break; fi
done
[ -n "$keyring" ] || die "no Debian archive keyring in /usr/share/keyrings: install the package debian-archive-keyring"

# mirrors prints the archive URIs worth trying: the machine's own apt sources,
# in either format, as apt itself understands them. Security and third-party
# archives carry no sid; they come last and fail the signature check.
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
mkdir -p "$work/root" "$work/none" "$work/log" "$work/state/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
: >"$work/sources.list"

# The machine's apt configuration stays in force (proxies, certificates) except
# for what is cleared here: hooks that would act on the system.
cat >"$work/apt.conf" <<CONF
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
Acquire::IndexTargets::deb::DEP-11-icons-hidpi::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-large::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi::DefaultEnabled "false";
Dir::State "$work/state";
Dir::State::Lists "$work/state/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Cache::archives "$work/cache/archives";
Dir::Log "$work/log";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "$work/none";
Dir::Etc::preferences "$work/none/preferences";
Dir::Etc::preferencesparts "$work/none";
CONF

# apt ARGS...: one run; its chatter goes to a log that is shown on failure.
# LC_ALL=C so that the log reads the same everywhere.
apt() { LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -y -c "$work/apt.conf" "$@" >"$work/apt.log" 2>&1 9>&-; }
show_log() { sed 's/^/  apt: /' "$work/apt.log" | tail -n 15 >&2; }

# try WHAT ARGS...: apt with bounded retries.
try() {
	what=$1
	shift
	n=1
	until apt "$@"; do
		say "$what failed (try $n of $tries_max)"
		if [ "$n" -ge "$tries_max" ]; then
			show_log
			return 1
		fi
		sleep $((n * 2))
		n=$((n + 1))
	done
}

found=
for uri in $(mirrors); do
	say "reading the package list of $suite from $uri"
	printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite" >"$work/sources.list"
	# Without Error-Mode "any", apt-get update calls a mirror that did not
	# answer a warning and exits with 0.
	if try "reading the package list" update -o APT::Update::Error-Mode=any; then
		found=$uri
		break
	fi
done
[ -n "$found" ] || die "no usable Debian archive in this machine's apt sources: set QUORATE_DEBIAN_MIRROR to the URI of one"

say "downloading $packages and the libraries they need"
# shellcheck disable=SC2086 # the list is meant to be split
try "the download" install --download-only --no-install-recommends $packages ||
	die "cannot download MySQL from $found"

say "unpacking $(ls "$work/cache/archives" | grep -c '\.deb$') packages"
mkdir "$work/all"
for deb in "$work"/cache/archives/*.deb; do
	dpkg -x "$deb" "$work/all" || die "cannot unpack $(basename "$deb")"
done

# Keep the server, the clients, their files, and the libraries; leave out perl,
# systemd, iproute2 and the like, which the packages' install scripts want.
cd "$work/all"
for path in usr/sbin/mysqld usr/bin/mysql usr/bin/mysql?* usr/lib/mysql usr/share/mysql usr/share/mysql-* \
	usr/share/doc/mysql-* usr/lib/*-linux-gnu* lib/*-linux-gnu*; do
	[ -e "$path" ] || continue
	mkdir -p "$work/root/$(dirname "$path")"
	mv "$path" "$work/root/$(dirname "$path")/"
done
cd - >/dev/null
for junk in perl perl5 perl-base gconv systemd security; do
	rm -rf -- "$work"/root/usr/lib/*-linux-gnu*/"$junk"
done
chmod -R u+rwX,go+rX,go-w "$work/root"

loader=
for l in "$work"/root/usr/lib/*-linux-gnu*/ld-linux*.so.* "$work"/root/lib/*-linux-gnu*/ld-linux*.so.*; do
	if [ -x "$l" ]; then loader=$l; break; fi
done
[ -n "$loader" ] || die "the packages hold no dynamic loader"
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
