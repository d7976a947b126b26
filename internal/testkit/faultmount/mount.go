package faultmount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// startTimeout bounds the mounting, answerTimeout the wait for an answer, closeTimeout the
	// unmounting.
	startTimeout  = 30 * time.Second
	answerTimeout = 30 * time.Second
	closeTimeout  = 30 * time.Second
)

// ErrUnavailable: file systems cannot be mounted here.
var ErrUnavailable = errors.New("no FUSE: it needs /dev/fuse and the right to mount")

// Mount is a disk that fails on command. Its methods are safe for concurrent use.
type Mount struct {
	at    string
	child *exec.Cmd
	stop  io.Closer
	ended chan error

	mu      sync.Mutex
	ask     *json.Encoder
	answers chan reply
}

// Available returns ErrUnavailable where there is no FUSE.
func Available() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil || os.Geteuid() != 0 {
		return errors.Join(ErrUnavailable, err)
	}
	return f.Close()
}

// Start mounts source at another directory. The running program must call
// ServeChild first in its main function.
func Start(ctx context.Context, source, at string) (*Mount, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the running program: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+at, sourceVariable+"="+source)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt must only reach the parent
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server of %s: %w", at, err)
	}
	m := &Mount{at: at, child: cmd, stop: in, ended: make(chan error, 1),
		ask: json.NewEncoder(in), answers: make(chan reply, 1)}
	go m.read(out)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := m.answer(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s at %s: %w", source, at, err), m.Close())
	}
	return m, nil
}

// read passes the answers on, and notes the child's end.
func (m *Mount) read(out io.Reader) {
	defer close(m.answers)
	for answers := json.NewDecoder(out); ; {
		var r reply
		if err := answers.Decode(&r); err != nil {
			m.ended <- m.child.Wait()
			return
		}
		m.answers <- r
	}
}

func (m *Mount) answer(ctx context.Context) (Status, error) {
	select {
	case r, ok := <-m.answers:
		if !ok {
			return Status{}, errors.New("its server has ended")
		}
		if r.Error != "" {
			return r.Status, errors.New(r.Error)
		}
		return r.Status, nil
	case <-ctx.Done():
		return Status{}, fmt.Errorf("its server does not answer: %w", ctx.Err())
	}
}

func (m *Mount) request(r request) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ask.Encode(r); err != nil {
		return Status{}, fmt.Errorf("ask the server of %s: %w", m.at, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	s, err := m.answer(ctx)
	if err != nil {
		return s, fmt.Errorf("ask the server of %s: %w", m.at, err)
	}
	return s, nil
}

// SetFaults replaces the faults. To an operation the first fault applies that matches it.
// Without faults the disk is well. Held operations go on, or get the new fault.
func (m *Mount) SetFaults(faults ...Fault) error {
	for _, f := range faults {
		if _, err := path.Match(f.Path, ""); err != nil {
			return fmt.Errorf("set faults: pattern %q: %w", f.Path, err)
		}
	}
	if faults == nil {
		faults = []Fault{}
	}
	_, err := m.request(request{Faults: &faults})
	return err
}

// Status returns what the faults have done.
func (m *Mount) Status() (Status, error) { return m.request(request{}) }

// CutPower loses all that was not synced, and from then on everything fails. The
// caller must end the processes that used the disk, and mount the source again.
func (m *Mount) CutPower() error {
	_, err := m.request(request{Cut: true})
	return err
}

// Close unmounts. Programs that still use the files get errors, first those whose operations are held.
func (m *Mount) Close() error {
	err := m.stop.Close()
	select {
	case ended := <-m.ended:
		err = errors.Join(err, ended)
	case <-time.After(closeTimeout):
		err = errors.Join(err, fmt.Errorf("the server of %s did not end", m.at), m.child.Process.Kill(), <-m.ended)
	}
	// In case the server could not unmount. As a rule there is no mount point any more.
	if gone := unix.Unmount(m.at, unix.MNT_DETACH); gone != nil && !errors.Is(gone, syscall.EINVAL) {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", m.at, gone))
	}
	return err
}
