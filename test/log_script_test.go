package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// lastSegment is the golden log's newest: entries 21-29, of which 29 is not
// committed, and zeros behind.
const lastSegment = "quorate.00000000000000000021"

// TestLogScripts runs the scripts of `quorate log` on copies of a log that is
// kept with its package: whole, with a torn tail, with damage, without its state.
func TestLogScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("script", "log"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "UTC")
			for name, spoil := range map[string]func(dir string) error{
				"log":     func(string) error { return nil },
				"torn":    func(dir string) error { return spoilByte(dir, lastSegment, 3900) },
				"damaged": func(dir string) error { return spoilByte(dir, "quorate.00000000000000000003", 1000) },
				"headless": func(dir string) error {
					return os.Remove(filepath.Join(dir, "state"))
				},
			} {
				dir := filepath.Join(env.WorkDir, name)
				if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "internal", "log", "seglog", "testdata", "golden-v1"))); err != nil {
					return err
				}
				if err := spoil(dir); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

func spoilByte(dir, name string, at int64) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 0x55
	_, err = f.WriteAt(b, at)
	return err
}
