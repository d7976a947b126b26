# apt.sh: Debian packages unpacked in a place of one's own. Sourced by get-mysql.sh and
# get-rivals.sh, which set
#
#   me     the name before each message
#   work   a directory that is theirs alone, removed at the end
#
# apt does the downloading with a state of its own (the system's package lists and
# database are neither read nor written) and checks Debian's signatures against the
# archive keyring. Root is not needed.
#
# Environment:
#   QUORATE_DEBIAN_MIRROR  archive URI to use instead of the machine's own
# shellcheck shell=sh

# Bound on whole tries of "apt update" and of a download, for networks that fail for a
# moment. apt itself continues files that it has in part.
tries_max=4

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$*"; exit 1; }

need_tools() {
	for tool in apt-get dpkg dpkg-deb flock; do
		command -v "$tool" >/dev/null || die "$tool is missing: this script needs a Debian or Ubuntu machine${1:+; $1}"
	done
	keyring=
	for k in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
		if [ -r "$k" ]; then keyring=$k; break; fi
	done
	[ -n "$keyring" ] || die "no Debian archive keyring in /usr/share/keyrings: install the package debian-archive-keyring"
}

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

# apt ARGS...: one run with the state in $state; its chatter goes to a log that is
# shown on failure. LC_ALL=C so that the log reads the same everywhere.
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

# open_suite SUITE: $state is a directory with the suite's package list.
open_suite() {
	state=$work/$1
	[ -d "$state" ] && return
	mkdir -p "$state/none" "$state/log" "$state/state/lists/partial" "$state/cache/archives/partial"
	: >"$state/status"
	: >"$state/sources.list"
	# The machine's apt configuration stays in force (proxies, certificates) except
	# for what is cleared here: hooks that would act on the system.
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
		# Without Error-Mode "any", apt-get update calls a mirror that did not
		# answer a warning and exits with 0.
		try "reading the package list" update -o APT::Update::Error-Mode=any && return
	done
	die "no usable Debian archive in this machine's apt sources: set QUORATE_DEBIAN_MIRROR to the URI of one"
}

# unpack SUITE ROOT KEEP PACKAGES...: what KEEP names of the packages, and of the
# libraries that they need all. Perl, systemd and the like, which only the packages'
# install scripts want, are left out.
unpack() {
	suite=$1 root=$2 keep=$3
	shift 3
	open_suite "$suite"
	rm -f "$state"/cache/archives/*.deb
	say "downloading $* and the libraries they need"
	try "the download" install --download-only --no-install-recommends "$@" || die "cannot download $*"
	all=$work/all
	rm -rf -- "$all"
	mkdir -p "$all" "$root"
	say "unpacking $(ls "$state/cache/archives" | grep -c '\.deb$') packages"
	for deb in "$state"/cache/archives/*.deb; do
		dpkg-deb -x "$deb" "$all" || die "cannot unpack $(basename "$deb")"
	done
	(
		cd "$all" # where the patterns of $keep are expanded
		for path in $keep usr/lib/*-linux-gnu* lib/*-linux-gnu*; do
			[ -e "$path" ] || continue
			mkdir -p "$root/$(dirname "$path")"
			mv "$path" "$root/$(dirname "$path")/"
		done
	)
	for junk in perl perl5 perl-base gconv systemd security; do
		rm -rf -- "$root"/usr/lib/*-linux-gnu*/"$junk"
	done
	chmod -R u+rwX,go+rX,go-w "$root"
}

# find_loader ROOT: $loader is the dynamic loader among the unpacked libraries.
find_loader() {
	loader=
	for l in "$1"/usr/lib/*-linux-gnu*/ld-linux*.so.* "$1"/lib/*-linux-gnu*/ld-linux*.so.*; do
		if [ -x "$l" ]; then loader=$l; return; fi
	done
	die "the packages hold no dynamic loader"
}
