#!/bin/sh
# Puts the MySQL drivers that test/drivers proves, and the tools of test/e2e that capture changes, in the versions named here,
# into a directory: scripts/get-drivers.sh DIR. It needs go, python3 with venv, npm and mvn; go-sql-driver comes with go.mod.
set -eu
dir=${1:?"usage: get-drivers.sh DIR"}
mkdir -p "$dir"

if [ ! -e "$dir/python/bin/python" ]; then
	python3 -m venv "$dir/python.new"
	mv "$dir/python.new" "$dir/python"
fi
"$dir/python/bin/python" -m pip install --quiet PyMySQL==1.1.2 cryptography==46.0.3 pytest==8.4.2
# PyMySQL's own tests: later releases at PyPI come without them.
if [ ! -e "$dir/pymysql-tests" ]; then
	rm -rf -- "$dir/pymysql-tests.new"
	mkdir "$dir/pymysql-tests.new"
	"$dir/python/bin/python" -m pip download --quiet --no-deps --no-binary :all: --dest "$dir/pymysql-tests.new" PyMySQL==0.10.1
	tar -xzf "$dir"/pymysql-tests.new/*.tar.gz -C "$dir/pymysql-tests.new" --strip-components 1 PyMySQL-0.10.1/pymysql/tests
	mv "$dir/pymysql-tests.new" "$dir/pymysql-tests"
fi
npm install --silent --no-audit --no-fund --prefix "$dir/node" mysql2@3.15.3
mvn --quiet --batch-mode dependency:copy -Dartifact=com.mysql:mysql-connector-j:9.5.0 -DoutputDirectory="$dir/java"
mvn --quiet --batch-mode dependency:copy -Dartifact=com.zaxxer:HikariCP:6.3.0 -DoutputDirectory="$dir/java"
mvn --quiet --batch-mode dependency:copy -Dartifact=org.slf4j:slf4j-api:2.0.17 -DoutputDirectory="$dir/java"

# with DIR GROUP:ARTIFACT:VERSION… puts artifacts and what they need into a directory.
with() {
	mkdir -p "$1"
	{
		echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>'
		for a in $(shift && echo "$@"); do
			echo "$a" | sed 's,\(.*\):\(.*\):\(.*\),<dependency><groupId>\1</groupId><artifactId>\2</artifactId><version>\3</version></dependency>,'
		done
		echo '</dependencies></project>'
	} >"$1/pom.xml"
	mvn --quiet --batch-mode --file "$1/pom.xml" dependency:copy-dependencies -DoutputDirectory="$1"
}
with "$dir/debezium" io.debezium:debezium-embedded:3.6.1.Final io.debezium:debezium-connector-mysql:3.6.1.Final org.slf4j:slf4j-simple:1.7.36
with "$dir/canal" com.alibaba.otter:canal.parse:1.1.7
mkdir -p "$dir/gh-ost"
cat >"$dir/gh-ost/go.mod" <<END
module x

go 1.26

require github.com/github/gh-ost v1.1.8
END
GOFLAGS=-mod=mod go -C "$dir/gh-ost" build -o gh-ost github.com/github/gh-ost/go/cmd/gh-ost
