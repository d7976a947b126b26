package faultmount

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// disk is what all nodes of a mount share.
type disk struct {
	source  string
	gate    *gate
	journal *journal
}

// node is a file or directory. Operations that are not here are passed through by the library.
type node struct {
	fs.LoopbackNode
	disk *disk
}

func newRoot(source string) (*node, *disk, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(source, &st); err != nil {
		return nil, nil, &os.PathError{Op: "stat", Path: source, Err: err}
	}
	d := &disk{source: source, gate: newGate(), journal: newJournal()}
	n := &node{disk: d}
	n.RootData = &fs.LoopbackRoot{Path: source, Dev: st.Dev}
	return n, d, nil
}

// WrapChild makes a node from each node of the library.
func (n *node) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	child := &node{disk: n.disk}
	child.RootData = n.RootData
	return child
}

// name is the path below the mount of the node, or of an entry in it.
func (n *node) name(in ...string) string {
	return path.Join(append([]string{n.Path(n.Root())}, in...)...)
}

// enter waits for the faults. Without an error the caller must call leave.
func (n *node) enter(ops Op, in ...string) syscall.Errno {
	return n.disk.gate.enter(ops, n.name(in...))
}

func (n *node) leave() { n.disk.gate.leave() }

// openFlags are the flags that are passed on. A file for writing is also opened for reading, so that writes can be
// undone. file keeps O_DSYNC; the kernel in front of us has already applied the other flags.
func openFlags(flags uint32) int {
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return syscall.O_RDONLY
	}
	return syscall.O_RDWR
}

// synchronous says that a write is durable when it returns. O_SYNC includes O_DSYNC.
func synchronous(flags uint32) bool { return flags&syscall.O_DSYNC != 0 }

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		if errno := n.enter(Modify); errno != 0 {
			return nil, 0, errno
		}
		defer n.leave()
	}
	f, err := os.OpenFile(filepath.Join(n.disk.source, n.name()), openFlags(flags), 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return &file{node: n, f: f, synchronous: synchronous(flags)}, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (
	*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.enter(Grow|Modify, name); errno != 0 {
		return nil, nil, 0, errno
	}
	defer n.leave()
	at := filepath.Join(n.disk.source, n.name(name))
	f, err := os.OpenFile(at, os.O_RDWR|os.O_CREATE|int(flags)&os.O_EXCL, os.FileMode(mode))
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	if caller, ok := fuse.FromContext(ctx); ok && os.Getuid() == 0 {
		err = f.Chown(int(caller.Uid), int(caller.Gid))
	}
	child, errno := n.Lookup(ctx, name, out)
	if err != nil {
		errno = fs.ToErrno(err)
	}
	if errno != 0 {
		_ = f.Close()
		return nil, nil, 0, errno
	}
	return child, &file{node: child.Operations().(*node), f: f, synchronous: synchronous(flags)}, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Mknod(ctx context.Context, name string, mode, dev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.enter(Grow|Modify, name); errno != 0 {
		return nil, errno
	}
	defer n.leave()
	return n.LoopbackNode.Mknod(ctx, name, mode, dev, out)
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.enter(Grow|Modify, name); errno != 0 {
		return nil, errno
	}
	defer n.leave()
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.enter(Grow|Modify, name); errno != 0 {
		return nil, errno
	}
	defer n.leave()
	return n.LoopbackNode.Symlink(ctx, target, name, out)
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.enter(Grow|Modify, name); errno != 0 {
		return nil, errno
	}
	defer n.leave()
	return n.LoopbackNode.Link(ctx, target, name, out)
}

// Tmpfile is refused: a caller that wants a file without a name makes one and removes it.
func (n *node) Tmpfile(context.Context, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.EOPNOTSUPP
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	if errno := n.enter(Modify, name); errno != 0 {
		return errno
	}
	defer n.leave()
	var st syscall.Stat_t
	err := syscall.Lstat(filepath.Join(n.disk.source, n.name(name)), &st)
	errno := n.LoopbackNode.Unlink(ctx, name)
	if err == nil && errno == 0 && st.Nlink == 1 {
		n.disk.journal.forget(&st)
	}
	return errno
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	if errno := n.enter(Modify, name); errno != 0 {
		return errno
	}
	defer n.leave()
	return n.LoopbackNode.Rmdir(ctx, name)
}

func (n *node) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := n.enter(Modify, name); errno != 0 {
		return errno
	}
	defer n.leave()
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

func (n *node) Getattr(ctx context.Context, h fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f, ok := h.(*file)
	if !ok {
		return n.LoopbackNode.Getattr(ctx, nil, out)
	}
	st, err := statFile(f.f)
	if err == nil {
		out.FromStat(&st)
	}
	return fs.ToErrno(err)
}

func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := n.enter(Modify); errno != 0 {
		return errno
	}
	defer n.leave()
	if size, ok := in.GetSize(); ok {
		if err := n.truncate(h, int64(size)); err != nil {
			return fs.ToErrno(err)
		}
		in.Valid &^= fuse.FATTR_SIZE
	}
	const rest = fuse.FATTR_MODE | fuse.FATTR_UID | fuse.FATTR_GID | fuse.FATTR_ATIME | fuse.FATTR_MTIME
	if in.Valid&rest == 0 {
		return n.Getattr(ctx, h, out)
	}
	return n.LoopbackNode.Setattr(ctx, nil, in, out)
}

// truncate sets a file's size, through its handle if there is one.
func (n *node) truncate(h fs.FileHandle, size int64) error {
	var f *os.File
	if open, ok := h.(*file); ok {
		f = open.f
	} else {
		opened, err := os.OpenFile(filepath.Join(n.disk.source, n.name()), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer opened.Close()
		f = opened
	}
	st, err := statFile(f)
	if err != nil {
		return err
	}
	return n.disk.journal.change(f, size, max(0, st.Size-size), func() error { return f.Truncate(size) })
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, fuseFlags, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &dir{dirHandle: h.(dirHandle), node: n}, fuseFlags, 0
}

// dirHandle has the methods of the library's open directory.
type dirHandle interface {
	fs.FileReaddirenter
	fs.FileFsyncdirer
	fs.FileSeekdirer
	fs.FileReleasedirer
}

// dir is an open directory.
type dir struct {
	dirHandle
	node *node
}

func (d *dir) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	if errno := d.node.enter(Sync); errno != 0 {
		return errno
	}
	defer d.node.leave()
	return d.dirHandle.Fsyncdir(ctx, flags)
}

// file is an open file.
type file struct {
	node        *node
	f           *os.File
	synchronous bool
}

func (f *file) Read(_ context.Context, buf []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	if errno := f.node.enter(Read); errno != 0 {
		return nil, errno
	}
	defer f.node.leave()
	n, err := unix.Pread(int(f.f.Fd()), buf, at)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(buf[:n]), 0
}

func (f *file) Write(_ context.Context, data []byte, at int64) (n uint32, errno syscall.Errno) {
	st, err := statFile(f.f)
	if err != nil {
		return 0, fs.ToErrno(err)
	}
	ops := Write
	if at+int64(len(data)) > st.Size {
		ops |= Grow
	}
	if errno := f.node.enter(ops); errno != 0 {
		return 0, errno
	}
	defer f.node.leave()
	err = f.node.disk.journal.change(f.f, at, int64(len(data)), func() error {
		done, err := f.f.WriteAt(data, at)
		n = uint32(done)
		return err
	})
	if err == nil && f.synchronous {
		err = f.node.disk.journal.sync(f.f)
	}
	return n, fs.ToErrno(err)
}

func (f *file) Allocate(_ context.Context, at, length uint64, mode uint32) syscall.Errno {
	if mode&^unix.FALLOC_FL_KEEP_SIZE != 0 {
		return syscall.EOPNOTSUPP // holes
	}
	if errno := f.node.enter(Grow); errno != 0 {
		return errno
	}
	defer f.node.leave()
	err := f.node.disk.journal.change(f.f, int64(at), 0, func() error {
		return unix.Fallocate(int(f.f.Fd()), mode, int64(at), int64(length))
	})
	return fs.ToErrno(err)
}

func (f *file) Fsync(_ context.Context, _ uint32) syscall.Errno {
	if errno := f.node.enter(Sync); errno != 0 {
		return errno
	}
	defer f.node.leave()
	return fs.ToErrno(f.node.disk.journal.sync(f.f))
}

func (f *file) Lseek(_ context.Context, at uint64, whence uint32) (uint64, syscall.Errno) {
	n, err := unix.Seek(int(f.f.Fd()), int64(at), int(whence))
	return uint64(n), fs.ToErrno(err)
}

// Flush comes with each close; there is nothing to pass on.
func (f *file) Flush(context.Context) syscall.Errno { return 0 }

func (f *file) Release(context.Context) syscall.Errno {
	if st, err := statFile(f.f); err == nil && st.Nlink == 0 {
		f.node.disk.journal.forget(&st)
	}
	return fs.ToErrno(f.f.Close())
}
