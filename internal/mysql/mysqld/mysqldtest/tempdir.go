package mysqldtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// sweepScript removes a directory once its standard input has ended, except files with some
// names. It tries several times, because a mysqld that is being killed may still write there.
const sweepScript = `
cat >/dev/null
dir=$1
shift
for try in 1 2 3 4 5 6 7 8 9 10; do
	[ -e "$dir" ] || exit
	find "$dir" -xdev ! -type d "$@" -delete && find "$dir" -xdev -depth -type d -empty -delete && exit
	sleep 1
done`

// OwnTempDir gives this process, and the processes that it starts, a directory of their own for
// temporary files ($TMPDIR). A child process removes it when end is called, or when this
// process has ended, also by a panic or a signal. So no failed test leaves servers' data
// behind. Files with the names in keep stay, unless the test removes them. Every user of the
// machine may write there.
func OwnTempDir(prefix string, keep ...string) (dir string, end func(), err error) {
	if dir, err = os.MkdirTemp("", prefix); err != nil {
		return "", nil, err
	}
	if err := errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Setenv("TMPDIR", dir)); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	in, alive, err := os.Pipe() // the other end closes with this process
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	args := []string{"-c", strings.TrimSpace(sweepScript), "sh", dir}
	for _, name := range keep {
		args = append(args, "!", "-name", name)
	}
	cmd := exec.Command("sh", args...)
	cmd.Stdin, cmd.SysProcAttr = in, &syscall.SysProcAttr{Setsid: true} // Ctrl-C does not reach it
	err = errors.Join(cmd.Start(), in.Close())
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("start a sweeper: %w", err), alive.Close(), os.RemoveAll(dir))
	}
	return dir, func() {
		_ = alive.Close()
		_ = cmd.Wait()
	}, nil
}
