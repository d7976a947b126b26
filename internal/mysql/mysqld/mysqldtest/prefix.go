package mysqldtest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/internal/mysql/install"
)

// mysqldScript is the program mysqld of a prefix.
//
//go:embed mysqld.sh
var mysqldScript string

// Prefix makes a MySQL installation in the directory dir. Its mysqld copies the data that
// --initialize-insecure has made before with the same options, and answers --version without a start of the
// real program. base is the prefix of the real installation; "" = as install.Discover finds it. Every user of
// the machine who can enter dir can use it.
func Prefix(dir, base string) error {
	in, err := install.Discover(base)
	if err != nil {
		return err
	}
	for _, d := range []string{"bin", "lib/mysql", "share/mysql", "templates"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return fmt.Errorf("make MySQL prefix: %w", err)
		}
	}
	templates, version := filepath.Join(dir, "templates"), filepath.Join(dir, "templates", "version")
	argv := append(in.MysqldArgv(), "--no-defaults", "--version")
	said, err := exec.Command(argv[0], argv[1:]...).Output()
	if err == nil {
		err = os.WriteFile(version, said, 0o644)
	}
	if err != nil {
		return fmt.Errorf("make MySQL prefix: %w", err)
	}
	if err := os.Chmod(templates, 0o777|os.ModeSticky); err != nil { // each user has templates of its own
		return fmt.Errorf("make MySQL prefix: %w", err)
	}
	links := map[string]string{"lib/mysql/plugin": in.PluginDir, "share/mysql/charsets": in.CharsetsDir}
	if in.ShareDir != "" {
		links["share/mysql/english"] = filepath.Join(in.ShareDir, "english")
	}
	var errs []error
	for name, target := range links {
		if target != "" {
			errs = append(errs, os.Symlink(target, filepath.Join(dir, name)))
		}
	}
	script := func(name, text, program string) {
		if program == "" {
			return
		}
		argv := quote(append(in.Loader[:len(in.Loader):len(in.Loader)], program)...)
		text = strings.NewReplacer("@PROGRAM@", argv, "@TEMPLATES@", quote(templates), "@VERSION@", quote(version)).Replace(text)
		errs = append(errs, os.WriteFile(filepath.Join(dir, "bin", name), []byte(text), 0o755))
	}
	const plain = "#!/bin/sh\nexec @PROGRAM@ \"$@\"\n"
	script("mysqld", mysqldScript, in.Mysqld)
	script("mysql", plain, in.Mysql)
	script("mysqlbinlog", plain, in.Mysqlbinlog)
	script("mysqldump", plain, in.Mysqldump)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("make MySQL prefix: %w", err)
	}
	return nil
}

// UseCopies makes a Prefix and lets install.Discover find it. It is made from the MySQL that
// $QUORATE_MYSQL_BASE names, else from that in base. Without a MySQL it does nothing. The Prefix
// is in a temporary directory of this process (OwnTempDir), which end removes.
func UseCopies(base string) (end func(), err error) {
	if os.Getenv(install.EnvBaseDir) != "" {
		base = ""
	}
	in, err := install.Discover(base)
	if err != nil {
		return func() {}, nil
	}
	dir, end, err := OwnTempDir("qm-") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	prefix := filepath.Join(dir, "mysql")
	if err := errors.Join(Prefix(prefix, in.BaseDir), os.Setenv(install.EnvBaseDir, prefix)); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// quote writes words for a shell.
func quote(words ...string) string {
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
