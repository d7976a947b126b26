#!/bin/sh
# Makes the deb, the rpm and the tarball of each architecture in dist/, of the binaries that
# "make release" has put there, and sums of all. The same commit makes the same bytes.
# usage: packages.sh VERSION    (of "git describe")
set -eu
version=$1
GO=${GO:-go}
cd "$(dirname "$0")/.."
umask 022
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
STAGE=$(mktemp -d)
export STAGE
trap 'rm -rf "$STAGE"' EXIT

PACKAGE_VERSION=$($GO -C packaging run ./stage -version "$version" -commits "$(git rev-list --count HEAD)" \
	-date "$SOURCE_DATE_EPOCH" -out "$STAGE")
export PACKAGE_VERSION
gzip -9n "$STAGE"/share/man/man1/*
doc=$STAGE/share/doc/quorate
cp README.md CONTRIBUTING.md LICENSE "$doc/"
cp -r docs "$doc/"
(cd packaging && cp -r --parents apparmor quorate.service sysusers.conf haproxy.cfg Containerfile hooks prometheus grafana kubernetes/quorate.yaml "$doc/examples/")
# The pages' links to packaging/ lead to the examples.
find "$doc" -name '*.md' -exec sed -i 's#\](\(\.\./\)*packaging/#](\1examples/#g' {} +
mkdir -p "$STAGE/bin" "$STAGE/lib/systemd/system" "$STAGE/lib/sysusers.d"
install -m 644 packaging/sysusers.conf "$STAGE/lib/sysusers.d/quorate.conf"
chmod -R u=rwX,go=rX "$STAGE"

for ARCH in amd64 arm64; do
	export ARCH
	install -m 755 "dist/quorate-$version-linux-$ARCH" "$STAGE/bin/quorate"
	# Unpacked in /usr/local the program is where the unit looks for it, and the unit where systemd does.
	install -m 644 packaging/quorate*.service packaging/quorate*.timer "$STAGE/lib/systemd/system/"
	tar -C "$STAGE" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c bin lib share |
		gzip -9n >"dist/quorate-$PACKAGE_VERSION-linux-$ARCH.tar.gz"
	sed -i 's#/usr/local/bin/quorate#/usr/bin/quorate#' "$STAGE"/lib/systemd/system/quorate*.service
	find "$STAGE" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
	for packager in deb rpm; do
		$GO -C packaging tool nfpm package --config nfpm.yaml --packager "$packager" --target ../dist/
	done
done
cd dist
rm -f SHA256SUMS
sha256sum -- * >SHA256SUMS
