package hostile

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long both ends of a connection may take. It is long, because a slow machine is no finding.
	patience = 20 * time.Second
	// toldBytesMax is how many bytes a client reads at most.
	toldBytesMax = 64 << 20
	allocated    = "/gc/heap/allocs:bytes"
)

// Talk lets serve serve a client, and then closes the connections. It fails t unless both return soon, and the whole
// process allocates at most roomBytes meanwhile.
func Talk(t testing.TB, roomBytes uint64, serve func(conn *net.UnixConn), client func(conn *net.UnixConn)) {
	t.Helper()
	near, far, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	before := allocatedBytes()
	done := make(chan string, 2)
	// A panic outside the test's goroutine would end the process, and a fuzzer would not show its input.
	end := func(side func(*net.UnixConn), conn *net.UnixConn) {
		panicked := ""
		defer func() { done <- panicked }()
		defer func() {
			if r := recover(); r != nil {
				panicked = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		side(conn)
	}
	go end(serve, far)
	go end(client, near)
	late := time.NewTimer(patience)
	defer late.Stop()
	for range 2 {
		select {
		case panicked := <-done:
			if panicked != "" {
				_, _ = near.Close(), far.Close()
				t.Fatal(panicked)
			}
		case <-late.C:
			stacks := make([]byte, 1<<20)
			t.Fatalf("not done after %v:\n%s", patience, stacks[:runtime.Stack(stacks, true)])
		}
	}
	_, _ = near.Close(), far.Close()
	if made := allocatedBytes() - before; made > roomBytes {
		t.Fatalf("%d bytes were allocated, at most %d may be", made, roomBytes)
	}
}

// Say is Talk with a client that sends exactly the bytes in sent, and then reads to the end. It returns what the
// client read.
func Say(t testing.TB, roomBytes uint64, sent []byte, serve func(conn *net.UnixConn)) (told []byte) {
	t.Helper()
	Talk(t, roomBytes, serve, func(conn *net.UnixConn) { told = Exchange(conn, sent) })
	return told
}

// Exchange sends exactly the bytes in sent, and returns all that it reads until the other end hangs up.
func Exchange(conn *net.UnixConn, sent []byte) (told []byte) {
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = conn.Write(sent) // the other end may hang up before it has read all
		_ = conn.CloseWrite()
	}()
	told, _ = io.ReadAll(io.LimitReader(conn, toldBytesMax)) // the connection may be reset at the end
	_ = conn.Close()
	<-wrote
	return told
}

func pair() (near, far *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	near, err = connection(fds[0])
	far, otherErr := connection(fds[1])
	return near, far, errors.Join(err, otherErr)
}

func connection(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer func() { _ = f.Close() }() // FileConn has a descriptor of its own
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: allocated}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Remote is a connection that seems to come from another host.
type Remote struct{ *net.UnixConn }

// RemoteAddr returns an address that no host has (RFC 5737).
func (Remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7} }
