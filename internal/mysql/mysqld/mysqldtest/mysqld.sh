#!/bin/sh
# mysqld for tests (package mysqldtest): --initialize-insecure copies what it has made before
# with the same options, as the same user. All else is mysqld's.
set -eu
case " $* " in
" --no-defaults --version ") exec cat @VERSION@ ;; # asked at each start of an agent, and of a command
*" --initialize-insecure "*) ;;
*) exec @PROGRAM@ "$@" ;;
esac
options=$(
	id -u
	for a; do
		case $a in
		--defaults-file=*) cat "${a#*=}" ;;
		*) printf '%s\n' "${a#--}" ;;
		esac
	done
)
data=$(printf '%s\n' "$options" | sed -n 's/^datadir=//p' | sed 's/^"\(.*\)"$/\1/')
key=$(printf '%s\n' "$options" | grep -v '^datadir=' | md5sum | cut -c 1-32)
template=@TEMPLATES@/$key
exec 9>"$template.lock"
flock 9 # the first one initialises, the others wait
if [ ! -d "$template" ]; then
	@PROGRAM@ "$@"
	rm -rf "$template.new"
	# Without what need not be copied: zeros, and spare redo files, which a start makes anew.
	cp -a --reflink=auto --sparse=always "$data" "$template.new"
	rm -f "$template.new/#innodb_redo/"*_tmp
	mv "$template.new" "$template"
	exit
fi
exec 9>&-
mkdir -p "$data"
exec cp -a --reflink=auto "$template/." "$data"
