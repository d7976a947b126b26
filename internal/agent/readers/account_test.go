package readers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

func TestReaderAccounts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := Account(config.Reader{User: "cdc", PasswordFile: write("good", "secret\n", 0o640), Decompress: true})
	if err != nil || got.PasswordHash != mysqlwire.HashPassword("secret") || !got.Decompress {
		t.Errorf("%+v, %v", got, err)
	}
	for name, path := range map[string]string{
		"everybody may read": write("open", "secret", 0o644), "is empty": write("empty", "\n", 0o600),
		"has 2000 bytes": write("long", strings.Repeat("x", 2000), 0o600), "no such file": filepath.Join(dir, "none"),
	} {
		if _, err := Account(config.Reader{User: "cdc", PasswordFile: path}); err == nil || !strings.Contains(err.Error(), name) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
