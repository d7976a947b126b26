package mysqldtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tempDirVariable makes the test binary make a temporary directory, and then end as the
// variable says, or wait to be killed.
const tempDirVariable = "QUORATE_TEST_TEMPDIR"

func TestMain(m *testing.M) {
	how := os.Getenv(tempDirVariable)
	if how == "" {
		os.Exit(m.Run())
	}
	dir, end, err := OwnTempDir("quorate-test-", "agent.log")
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "a", "data", "empty"), 0o755)
	}
	for _, name := range []string{"a/agent.log", "a/data/ibdata1", "b"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(os.TempDir())
	switch how {
	case "end":
		end()
	case "panic":
		panic("on purpose")
	case "kill":
		time.Sleep(time.Hour)
	}
}

// TestOwnTempDir expects that everything but the logs is removed, however the process ends.
func TestOwnTempDir(t *testing.T) {
	for _, how := range []string{"end", "panic", "kill"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), tempDirVariable+"="+how)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		dir, err := bufio.NewReader(out).ReadString('\n')
		if dir = strings.TrimSpace(dir); err != nil || filepath.Dir(dir) != filepath.Clean(os.TempDir()) {
			t.Fatalf("%s: directory %q, %v", how, dir, err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if how == "kill" {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // its exit status is how it ends
		left := ""
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			left = ""
			_ = filepath.Walk(dir, func(path string, _ os.FileInfo, _ error) error {
				left += " " + strings.TrimPrefix(path, dir)
				return nil
			})
			if left == "  /a /a/agent.log" {
				break
			}
			if how == "end" || time.Now().After(end) { // end waits
				t.Errorf("%s: left are%s", how, left)
				break
			}
		}
	}
}
