#!/bin/sh
# Makes the documentation a site in dist/site, by mdBook. If there is none, cargo builds it in .mdbook, once (minutes).
# Exit code 4: there is none, and none could be built.
set -eu
version=0.4.52
cd "$(dirname "$0")/.."
PATH=$PWD/.mdbook/bin:$PATH
command -v mdbook >/dev/null || cargo install mdbook --locked --version "$version" --no-default-features --features search --root .mdbook || {
	echo 'site: there is no mdbook, and none could be built: the site was NOT made' >&2
	exit 4
}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cp -r docs/. "$work"
# What is outside of docs/ is not in the site: such links lead to the sources.
sources=https://github.com/quorate/quorate/blob/main
find "$work" -maxdepth 1 -name '*.md' -exec sed -i "s#](\.\./#]($sources/#g" {} +
find "$work" -mindepth 2 -name '*.md' -exec sed -i "s#](\.\./\.\./#]($sources/#g" {} +
mkdir -p dist
mdbook build --dest-dir "$PWD/dist/site" "$work"
