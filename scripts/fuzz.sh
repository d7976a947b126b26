#!/bin/sh
# Runs every fuzz target of the repository, for FUZZTIME together (1h; also 90s, 5m). What strangers' bytes reach first, the
# listeners and their frames, gets four shares, all else one: with 5m or more a share is at least 10 s, if that takes longer
# together. With less most do not get beyond the inputs that are known.
# What they find lands in the package's testdata/fuzz, as a test for ever after; the inputs that led there are
# kept in Go's build cache.
set -eu
cd "$(dirname -- "$0")/.."
GO=${GO:-go}
time=${FUZZTIME:-1h}
case $time in
*[!0-9]*[hms] | [hms]) seconds= ;;
*h) seconds=$((${time%h} * 3600)) ;;
*m) seconds=$((${time%m} * 60)) ;;
*s) seconds=${time%s} ;;
*) seconds= ;;
esac
[ -n "$seconds" ] || { echo "FUZZTIME=$time: it is a whole number of h, m or s" >&2; exit 2; }
binaries=$(mktemp -d)
trap 'rm -rf "$binaries"' EXIT
trap 'exit 1' INT TERM
# shares says how many a package's targets get.
shares() {
	case $1 in
	internal/front/* | internal/mysql/mysqlwire | internal/raft/frame | internal/raft/transport) echo 4 ;;
	*) echo 1 ;;
	esac
}
set --
all=0
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' internal | xargs -n1 dirname | sort -u); do
	binary=$binaries/$(echo "$dir" | tr / -)
	"$GO" test -c -fuzz=Fuzz -o "$binary" "./$dir"
	for target in $(cd "$dir" && "$binary" -test.list '^Fuzz'); do
		set -- "$@" "$dir:$target"
		all=$((all + $(shares "$dir")))
	done
done
one=$((seconds * 1000 / all))
if [ "$seconds" -ge 300 ] && [ "$one" -lt 10000 ]; then
	one=10000
fi
echo "$# targets, $one ms each, listeners and frames $((4 * one)) ms" >&2
failed= known=0
for each; do
	dir=${each%:*} target=${each#*:}
	binary=$binaries/$(echo "$dir" | tr / -) output=$binaries/output share=$((one * $(shares "$dir")))
	# A target that hangs, or an input that is being made smaller, must not take the time of the others.
	(cd "$dir" && timeout -k 10 $((share / 1000 + 60)) "$binary" -test.run '^$' -test.fuzz "^$target\$" \
		-test.fuzztime "${share}ms" -test.fuzzminimizetime 100x \
		-test.fuzzcachedir "$("$GO" env GOCACHE)/fuzz/$("$GO" list .)" </dev/null >"$output" 2>&1) ||
		# The end of its time makes a target fail now and then, without an input: issue 75804 of Go, until 1.27.
		[ "$(grep -v -e '^fuzz: elapsed' -e '^--- FAIL' -e '^FAIL$' "$output")" = '    context deadline exceeded' ] ||
		{ failed="$failed $each" && cat "$output" >&2; }
	echo "$dir $target: $(grep '^fuzz: elapsed' "$output" | tail -n 1)" >&2
	grep -q 'now fuzzing' "$output" || known=$((known + 1))
done
echo "$known of $# targets never left the baseline: they tried known inputs alone" >&2
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
