package readers

import (
	"fmt"
	"os"
	"strings"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

// passwordBytesMax bounds how much of a password file is read.
const passwordBytesMax = 1 << 10

// Account reads a reader of the configuration, and the file of its password.
func Account(r config.Reader) (mysqlwire.Reader, error) {
	account := mysqlwire.Reader{User: r.User, Allow: r.Allow, Decompress: r.Decompress, PasswordHash: mysqlwire.PasswordHash(r.PasswordHash), SQL: r.SQL, Site: r.Site}
	if r.PasswordFile == "" {
		return account, nil
	}
	info, err := os.Stat(r.PasswordFile)
	if err != nil {
		return account, fmt.Errorf("read password of reader %q: %w", r.User, err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return account, fmt.Errorf("read password of reader %q: everybody may read %s: chmod o= it", r.User, r.PasswordFile)
	}
	if info.Size() > passwordBytesMax {
		return account, fmt.Errorf("read password of reader %q: %s has %d bytes", r.User, r.PasswordFile, info.Size())
	}
	text, err := os.ReadFile(r.PasswordFile)
	if err != nil {
		return account, fmt.Errorf("read password of reader %q: %w", r.User, err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return account, fmt.Errorf("read password of reader %q: %s is empty", r.User, r.PasswordFile)
	}
	account.PasswordHash = mysqlwire.HashPassword(password)
	if r.SQL {
		account.Password = password
	}
	return account, nil
}
