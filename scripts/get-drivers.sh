#!/bin/sh
# Puts the MySQL drivers that test/drivers proves, in the versions named here, into a directory:
# scripts/get-drivers.sh DIR. It needs python3 with venv, npm and mvn; go-sql-driver comes with go.mod.
set -eu
dir=${1:?"usage: get-drivers.sh DIR"}
mkdir -p "$dir"

if [ ! -e "$dir/python/bin/python" ]; then
	python3 -m venv "$dir/python.new"
	mv "$dir/python.new" "$dir/python"
fi
"$dir/python/bin/python" -m pip install --quiet PyMySQL==1.1.2 cryptography==46.0.3
npm install --silent --no-audit --no-fund --prefix "$dir/node" mysql2@3.15.3
mvn --quiet --batch-mode dependency:copy -Dartifact=com.mysql:mysql-connector-j:9.5.0 -DoutputDirectory="$dir/java"
mvn --quiet --batch-mode dependency:copy -Dartifact=com.zaxxer:HikariCP:6.3.0 -DoutputDirectory="$dir/java"
mvn --quiet --batch-mode dependency:copy -Dartifact=org.slf4j:slf4j-api:2.0.17 -DoutputDirectory="$dir/java"
