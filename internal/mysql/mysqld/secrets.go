package mysqld

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"regexp"

	"github.com/pelletier/go-toml/v2"

	"github.com/quorate/quorate/internal/log/vfs"
)

// ErrSecrets: the secrets file cannot be trusted or lacks a password.
var ErrSecrets = errors.New("unusable secrets file")

// secretsRemedy is what a person does about a file without the passwords: mysqld gets new ones at each start.
const secretsRemedy = "remove it, and start the agent: it makes new passwords"

// secretsBytesMax bounds the length of a secrets file; four lines have 250 bytes.
const secretsBytesMax = 64 << 10

// Secrets are the passwords of the internal accounts of one node. The file is
//
//	admin = "Aa1-…"     quorate_admin@localhost: the agent
//	tap   = "Aa1-…"     quorate_tap@localhost: the tap
//	dba   = "Aa1-…"     dba@localhost: the operator, through `quorate mysql`
//
// with mode 0600. It prints redacted.
type Secrets struct {
	Admin string `toml:"admin"`
	Tap   string `toml:"tap"`
	DBA   string `toml:"dba"`
}

// LogValue redacts.
func (s Secrets) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// String redacts.
func (s Secrets) String() string { return "[redacted]" }

// GoString redacts.
func (s Secrets) GoString() string { return "[redacted]" }

// validate reports whether every password can stand in SQL text as it is.
func (s Secrets) validate() error {
	for name, v := range map[string]string{"admin": s.Admin, "tap": s.Tap, "dba": s.DBA} {
		if !plainPassword(v) {
			return fmt.Errorf("%w: %s is not 16 to 64 letters, digits, '-' or '_'", ErrSecrets, name)
		}
	}
	return nil
}

// plainPassword tells whether a password can stand in SQL text as it is.
func plainPassword(s string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`).MatchString(s)
}

// newPassword returns 128 random bits in hex. The prefix satisfies the password
// policy of a server that has validate_password.
func newPassword() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // Never fails (Go 1.24).
	return "Aa1-" + hex.EncodeToString(b[:])
}

// GenerateSecrets makes new secrets and writes them durably to path with mode
// 0600. It never overwrites: it fails with fs.ErrExist if path is there.
func GenerateSecrets(fs vfs.FS, path string) (Secrets, error) {
	s := Secrets{Admin: newPassword(), Tap: newPassword(), DBA: newPassword()}
	text, err := toml.Marshal(s)
	if err != nil {
		return Secrets{}, fmt.Errorf("encode secrets: %w", err)
	}
	if err := vfs.WriteNew(vfs.As(fs, 0o600, nil), path, text); err != nil {
		return Secrets{}, fmt.Errorf("write secrets: %w", err)
	}
	return s, nil
}

// nextSecrets is the file of new passwords, which will replace the file path.
func nextSecrets(path string) string { return path + ".next" }

// RotateSecrets makes new passwords for the secrets file path, durably. They are not used
// before AdoptSecrets: until then the server has the old ones.
func RotateSecrets(fs vfs.FS, path string) error {
	next := nextSecrets(path)
	if err := fs.Remove(next); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("remove secrets that were not used: %w", err)
	}
	_, err := GenerateSecrets(fs, next)
	return err
}

// AdoptSecrets replaces the secrets file path by the new passwords of RotateSecrets, if there
// are any. The next start of the server sets them. No server that was started with the old ones
// may run.
func AdoptSecrets(fs vfs.FS, path string) error {
	if err := vfs.Move(fs, nextSecrets(path), path); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("adopt new secrets: %w", err)
	}
	return nil
}

// LoadSecrets reads what GenerateSecrets wrote. A missing file is
// fs.ErrNotExist; a file that others may read or that lacks a password is
// ErrSecrets.
func LoadSecrets(path string) (Secrets, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Secrets{}, fmt.Errorf("open secrets: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return Secrets{}, fmt.Errorf("%w: %s has mode %04o; run chmod 600", ErrSecrets, path, st.Mode().Perm())
	}
	if st.Size() > secretsBytesMax {
		return Secrets{}, fmt.Errorf("%w: %s has %d bytes: %s", ErrSecrets, path, st.Size(), secretsRemedy)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Secrets{}, fmt.Errorf("read secrets: %w", err)
	}
	return parseSecrets(path, text)
}

// parseSecrets reads the text of the secrets file path.
func parseSecrets(path string, text []byte) (Secrets, error) {
	var s Secrets
	if err := toml.Unmarshal(text, &s); err != nil {
		return Secrets{}, fmt.Errorf("%w: %s is not TOML: %s", ErrSecrets, path, secretsRemedy) // The text stays out of the error.
	}
	if err := s.validate(); err != nil {
		return Secrets{}, fmt.Errorf("%s: %w: %s", path, err, secretsRemedy)
	}
	return s, nil
}
