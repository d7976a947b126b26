#!/bin/sh
# Runs every fuzz target of the repository for FUZZTIME (30s) each. What they
# find lands in the package's testdata/fuzz, as a test for ever after.
set -eu
cd "$(dirname -- "$0")/.."
grep -rl --include='*_test.go' '^func Fuzz' internal | xargs -n1 dirname | sort -u | while read -r dir; do
	grep -h '^func Fuzz' "$dir"/*_test.go | sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/' | while read -r target; do
		echo "$dir $target" >&2
		go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" </dev/null
	done
done
