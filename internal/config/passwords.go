package config

import (
	"fmt"
	"os"
)

// OpenPasswordFiles says which files of passwords others than their owner may read, or nobody can. Where everybody may, the
// agent does not start; a group may be the agent's own, with root as the owner.
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
