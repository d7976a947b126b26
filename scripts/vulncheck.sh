#!/usr/bin/env bash
# Looks for known holes in what bin/quorate is made of, in the Go project's database of
# vulnerabilities ($GOVULNDB names a copy). Exit code 3: there are some. 4: nobody knows, the
# database does not answer.
set -u
cd "$(dirname "$0")/.."
out=$("${GO:-go}" tool -modfile=tools/go.mod govulncheck ./cmd/quorate 2>&1)
rc=$?
printf '%s\n' "$out"
if ((rc == 1)) && [[ $out == *"fetching vulnerabilities"* ]]; then
	echo "vulncheck: the database does not answer: known holes were NOT looked for" >&2
	exit 4
fi
exit $rc
