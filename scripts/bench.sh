#!/bin/sh
# bench.sh [FLAGS]: build and run test/bench; -h lists the flags.
#
# sysbench comes from the distribution. It is installed where this runs as
# root; elsewhere the script says what to install. Its client library brings
# the plugin for caching_sha2_password (see test/bench/doc.go).
#
# Environment:
#   QUORATE_MYSQL_BASE  the MySQL to measure; default: .mysql of this repository,
#                       fetched if it is not there
set -eu

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

cd -- "$(dirname -- "$0")/.."
go=${GO:-go}
command -v "$go" >/dev/null || die "$go is missing: install Go"

parts=$(printf ' %s ' "$*" | sed -n 's/.* --*only[= ]\([a-z,]*\) .*/\1/p' | tr , ' ')

# wanted says whether the run needs servers: part log alone does not.
wanted() {
	case " $* " in
	*" -h "* | *"-help "*) return 1 ;;
	esac
	[ "$parts" != log ]
}

# loaded says whether it needs sysbench: some parts bring their own writers.
loaded() {
	[ -n "$parts" ] || return 0
	for part in $parts; do
		case $part in
		log | large | switchover | failures) ;;
		*) return 0 ;;
		esac
	done
	return 1
}

get_sysbench() {
	command -v sysbench >/dev/null && return
	command -v apt-get >/dev/null || die "sysbench is missing: install it (version 1.0)"
	[ "$(id -u)" = 0 ] || die "sysbench is missing: run 'apt-get install sysbench' as root"
	say "installing sysbench"
	log=$(mktemp)
	if ! { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends sysbench; } >"$log" 2>&1; then
		tail -n 15 "$log" >&2
		rm -f -- "$log"
		die "cannot install sysbench"
	fi
	rm -f -- "$log"
}

if wanted "$@"; then
	if loaded "$@"; then get_sysbench; fi
	if [ -z "${QUORATE_MYSQL_BASE:-}" ]; then
		QUORATE_MYSQL_BASE=$PWD/.mysql
		export QUORATE_MYSQL_BASE
		scripts/get-mysql.sh "$QUORATE_MYSQL_BASE"
	fi
	"$go" build -trimpath -o bin/quorate ./cmd/quorate
fi
"$go" build -trimpath -o bin/bench ./test/bench
# exec: Ctrl-C and SIGTERM reach the program that has to tidy up.
exec bin/bench "$@"
