#!/bin/sh
# Lets schemathesis (pip install schemathesis) try what openapi.json says against an agent: URL is
# where it answers, QUORATE_TOKEN a token that may operate. The requests that it makes are real: it
# moves the primary and switches maintenance, so use a cluster of "quorate demo --keep" or the like.
set -eu
URL=${1:?usage: scripts/api-check.sh http://127.0.0.1:7401 [schemathesis options]}
shift
# A stream goes on for minutes, so /v1/events is left out. What fits the schema may still be wrong for
# the cluster, such as a node that is not there, so a 400 is no failure.
exec schemathesis run "$URL/v1/openapi.json" --url "$URL" \
	--header "Authorization: Bearer ${QUORATE_TOKEN:?set it to a token with the role operate}" \
	--exclude-path /v1/events --checks all --exclude-checks positive_data_acceptance "$@"
