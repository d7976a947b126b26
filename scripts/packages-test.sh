#!/bin/sh
# Installs the deb of a directory in a minimal Debian 12 of its own, upgrades, removes and purges it; then the rpm, with rpm in the
# same Debian: its files and scripts are tried, not what it depends on. Needs root and debootstrap.
# usage: packages-test.sh DIST
# QUORATE_DEBIAN_MIRROR names the archive to use, as for get-mysql.sh.
set -eu
say() { printf 'packages-test: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
[ $# = 1 ] || die "usage: packages-test.sh DIST"
[ "$(id -u)" = 0 ] || die "run it as root: it makes a Debian below a temporary directory, and enters it"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
dist=$(cd "$1" && pwd)
source=$(cd "$(dirname -- "$0")/.." && pwd)
go=${GO:-go}
arch=$(dpkg --print-architecture)
deb=$(ls "$dist"/quorate_*_"$arch".deb) || die "$dist has no deb for $arch: make packages"
(cd "$dist" && sha256sum --check --quiet SHA256SUMS) || die "SHA256SUMS is wrong"
for file in "$dist"/*; do
	[ "${file##*/}" = SHA256SUMS ] || grep -qF "  ${file##*/}" "$dist/SHA256SUMS" || die "SHA256SUMS lacks $file"
done

top=$(mktemp -d)
root=$top/debian
trap 'rm -rf -- "$top"' EXIT
mirror=${QUORATE_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/*$')}
say "making a Debian 12 with systemd and man-db"
debootstrap --variant=minbase --include=systemd,man-db,bash-completion,zsh,rpm bookworm "$root" "$mirror" >"$top/log" 2>&1 ||
	{ tail -n 20 "$top/log" >&2; die "debootstrap failed"; }
cp "$deb" "$root/quorate.deb"
in_root() { chroot "$root" env -i LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
want() { # WORDS IN...: what a command prints has WORDS
	words=$1
	shift
	said=$("$@" 2>&1) || die "$*: $said"
	case $said in *"$words"*) ;; *) die "$*: it lacks \"$words\": $said" ;; esac
}

# The image file, built for real. Its two bases come from no registry: they are this Debian, with the account that MySQL's has,
# and the Go that runs here. So what is tried is the file, not MySQL's image.
image() {
	export CONTAINERS_STORAGE_CONF="$top/storage.conf"
	printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$top" "$top" >"$CONTAINERS_STORAGE_CONF"
	echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$top/policy.json"
	file=$source/packaging/Containerfile
	base=$(buildah from scratch)
	buildah add -q "$base" "$root" / >/dev/null
	buildah config --env PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin "$base"
	buildah run --isolation chroot "$base" -- useradd --system --uid 999 --user-group mysql
	buildah commit -q --rm "$base" "$(sed -n 's/^ARG MYSQL_IMAGE=//p' "$file")" >/dev/null
	buildah tag "$(sed -n 's/^ARG MYSQL_IMAGE=//p' "$file")" "$(sed -n 's/^ARG GO_IMAGE=//p' "$file")"
	buildah bud -q --isolation chroot --pull-never --signature-policy "$top/policy.json" --env GOTOOLCHAIN=local --env "GOPROXY=$($go env GOPROXY)" \
		--volume "$($go env GOROOT):/usr/local/go:ro" --volume /etc/ssl/certs:/etc/ssl/certs:ro --volume "$($go env GOMODCACHE):/root/go/pkg/mod" \
		--volume "$($go env GOCACHE):/root/.cache/go-build" --build-arg VERSION=v0-image -f "$file" -t quorate "$source" >"$top/log" 2>&1 ||
		{ tail -n 20 "$top/log" >&2; die "packaging/Containerfile cannot be built"; }
	c=$(buildah from -q --pull-never --signature-policy "$top/policy.json" quorate)
	want "quorate v0-image " buildah run --isolation chroot "$c" -- quorate --version
	want "How it stands:" buildah run --isolation chroot "$c" -- quorate --help
	want "751 mysql:mysql" buildah run --isolation chroot "$c" -- stat -c '%a %U:%G' /var/lib/quorate
	[ "$(buildah run --isolation chroot "$c" -- id -un)" = mysql ] || die "the image does not run as mysql"
	want '[/usr/bin/quorate] [run --config /etc/quorate/node.toml]' buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' quorate
}
if command -v buildah >/dev/null; then
	say "building the image of packaging/Containerfile"
	image
else
	say "buildah is not there: the image was not built"
fi

say "installing ${deb##*/}"
in_root dpkg -i /quorate.deb >"$top/log" 2>&1 || { cat "$top/log" >&2; die "it cannot be installed"; }
version=$(in_root dpkg-query -W -f '${Version}' quorate)
want "quorate " in_root quorate --version
want '[[member]]' in_root quorate config example
in_root cmp /usr/share/doc/quorate/examples/node.toml - <<END || die "the example of node.toml is not the program's"
$(in_root quorate config example)
END
want "Move the primary" in_root man quorate-switchover
want "Exit codes" in_root man quorate
want "__start_quorate" in_root bash -c '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/quorate; complete -p quorate'
want "_quorate" in_root zsh -c 'autoload -Uz compinit; compinit -u; echo $_comps[quorate]'
for doc in README.md LICENSE docs/operations.md examples/haproxy.cfg examples/hooks/vip examples/prometheus/quorate.rules.yaml \
	examples/grafana/quorate.json examples/apparmor; do
	[ -s "$root/usr/share/doc/quorate/$doc" ] || die "/usr/share/doc/quorate lacks $doc"
done
for unit in quorate.service quorate-archive.service quorate-backup.service quorate-backup.timer; do
	want "" in_root systemd-analyze verify "/usr/lib/systemd/system/$unit"
	[ -z "$said" ] || die "$unit has faults: $said"
done
want "u mysql -" in_root systemd-sysusers --cat-config
want "751 mysql:mysql" in_root stat -c '%a %U:%G' /var/lib/quorate
want "755 root:root" in_root stat -c '%a %U:%G' /etc/quorate
# Installed, and no more: nothing starts it but its operator.
[ "$(in_root systemctl is-enabled quorate.service 2>&1)" = disabled ] || die "the package has enabled the unit"

say "making the files of a cluster, and data"
in_root quorate init --nodes a=10.0.0.1,b=10.0.0.2,c=10.0.0.3 --out /root/cluster >/dev/null
in_root cp /root/cluster/a/node.toml /root/cluster/a/node.key /etc/quorate/
in_root install -o mysql -g mysql /dev/null /var/lib/quorate/kept
kept() { [ -e "$root/var/lib/quorate/kept" ] && [ -s "$root/etc/quorate/node.key" ] || die "$1 deletes what is not the package's"; }

say "installing it again, as an upgrade"
in_root dpkg -i /quorate.deb >"$top/log" 2>&1 || { cat "$top/log" >&2; die "it cannot be upgraded"; }
kept "an upgrade"
say "removing and purging it"
want "/var/lib/quorate is left" in_root dpkg --remove quorate
kept "removal"
[ ! -e "$root/usr/bin/quorate" ] || die "removal leaves the program"
in_root dpkg -i /quorate.deb >"$top/log" 2>&1 || { cat "$top/log" >&2; die "it cannot be installed again"; }
want "/etc/quorate is left" in_root dpkg --purge quorate
kept "purge"
left=$(find "$root/usr" "$root/lib" -name '*quorate*')
[ -z "$left" ] || die "purge leaves $left"

rpm=$(ls "$dist"/quorate-*."$(uname -m)".rpm)
say "installing ${rpm##*/}"
cp "$rpm" "$root/quorate.rpm"
want "" in_root rpm -i --nodeps /quorate.rpm
want "quorate " in_root quorate --version
want "quorate-archive.service" in_root rpm -ql quorate
want "" in_root rpm --verify --nodeps quorate
[ -z "$said" ] || die "rpm finds changed: $said"
want "" in_root systemd-analyze verify /usr/lib/systemd/system/quorate.service
[ -z "$said" ] || die "the unit of the rpm has faults: $said"
want "_quorate" in_root zsh -c 'fpath=(/usr/share/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u; echo $_comps[quorate]'
want "" in_root rpm -U --nodeps --replacepkgs /quorate.rpm
kept "an upgrade of the rpm"
want "quorate " in_root quorate --version
want "/var/lib/quorate is left" in_root rpm -e --nodeps quorate
kept "rpm -e"
left=$(find "$root/usr" "$root/lib" -name '*quorate*')
[ -z "$left" ] || die "rpm -e leaves $left"
for tarball in "$dist"/quorate-*.tar.gz; do
	want "bin/quorate" tar -tzf "$tarball"
done
say "all is well with quorate $version"
