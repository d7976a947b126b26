package config

import (
	"fmt"
	"os"
)

// OpenPasswordFiles says which password files cannot be read, and which can be read by others than their owner. If
// everybody may read one, the agent does not start. If only a group may, the agent warns: root may own the file, and
// the group may be the agent's own.
func (c Config) OpenPasswordFiles() (texts []string) {
	check := func(of, path string) {
		switch info, err := os.Stat(path); {
		case path == "":
		case err != nil:
			texts = append(texts, fmt.Sprintf("the password_file of %s cannot be read: %v", of, err))
		case info.Mode().Perm()&0o077 != 0:
			texts = append(texts, fmt.Sprintf("the password_file of %s is open to others (mode %#o): let the agent's account own it, and chmod 600 %s", of, info.Mode().Perm(), path))
		}
	}
	for _, r := range c.Readers {
		check(fmt.Sprintf("reader %q", r.User), r.PasswordFile)
	}
	check(fmt.Sprintf("site %q", c.Site.Name), c.Site.PasswordFile)
	return texts
}
