package faultmount

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// childVariable tells a program that it must serve a mount. Its value is
// the place of the mount; sourceVariable has the source.
const (
	childVariable  = "QUORATE_FAULTMOUNT_AT"
	sourceVariable = "QUORATE_FAULTMOUNT_SOURCE"
)

// backgroundMax is how many asynchronous requests the kernel may have under way: a few
// requests that are held must not stop requests for other files.
const backgroundMax = 256

// request is one line from the parent. The zero request asks for the status.
type request struct {
	Faults *[]Fault `json:",omitempty"`
	Cut    bool     `json:",omitempty"`
}

// reply is one line to the parent; the first comes once the mount is there.
type reply struct {
	Status Status
	Error  string `json:",omitempty"`
}

// ServeChild is called first by the main function of each program that calls
// Start. In the process that Start made it serves the mount and never returns.
func ServeChild() {
	at := os.Getenv(childVariable)
	if at == "" {
		return
	}
	if err := serve(os.Getenv(sourceVariable), at, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "serve the fault mount at %s: %v\n", at, err)
		os.Exit(1)
	}
	os.Exit(0) // closes the connection: programs that still use the files get errors
}

// serve mounts, does what the parent asks until the parent is gone, and unmounts.
func serve(source, at string, in io.Reader, out io.Writer) error {
	syscall.Umask(0) // the kernel has already applied the caller's umask
	answers := json.NewEncoder(out)
	root, d, err := newRoot(source)
	if err == nil {
		_, err = fs.Mount(at, root, &fs.Options{MountOptions: fuse.MountOptions{
			AllowOther: true, DirectMountStrict: true, DisableXAttrs: true, MaxBackground: backgroundMax,
			MaxWrite: 1 << 20, FsName: source, Name: "quorate-fault", Options: []string{"default_permissions"},
			ExtraCapabilities: fuse.CAP_DIRECT_IO_ALLOW_MMAP, Logger: log.New(io.Discard, "", 0),
		}})
	}
	if err != nil {
		return errors.Join(err, answers.Encode(reply{Error: err.Error()}))
	}
	// Lazy: the mount may be in use, and its uses end with this process.
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	if err := answers.Encode(reply{}); err != nil {
		return err
	}
	for requests := json.NewDecoder(in); ; {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := answers.Encode(d.do(r)); err != nil {
			return err
		}
	}
}

func (d *disk) do(r request) (answer reply) {
	if r.Faults != nil {
		d.gate.set(*r.Faults)
	}
	if r.Cut {
		if err := d.gate.cut(d.journal.undo); err != nil {
			answer.Error = err.Error()
		}
	}
	answer.Status = d.gate.now()
	return answer
}
