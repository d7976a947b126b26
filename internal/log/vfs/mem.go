package vfs

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
)

// SectorBytes is what a disk writes as a whole: a power loss leaves the old or the new content of each sector,
// independently of the other sectors.
const SectorBytes = 512

// Mem is a file system in memory that remembers what was not synced yet, for tests of what a power loss leaves.
// Its zero value is not usable; use NewMem.
type Mem struct {
	mu   sync.Mutex
	dirs map[string]*memDir
	// moved are the renames of directories that are not durable yet.
	moved [][2]string
}

var _ FS = (*Mem)(nil)

// memDir is a directory. names is what the running system sees, durable is what is on the disk, pending are the
// changes between the two.
type memDir struct {
	names   map[string]*memInode
	durable map[string]*memInode
	pending []dirOp
	locked  bool
}

// dirOp is one change of a directory: name now means inode, or nothing if inode is nil, and from, if not empty,
// means nothing any more. across are the two directories of a rename between directories: after a power loss
// both have the change, or neither.
type dirOp struct {
	name   string
	from   string
	inode  *memInode
	across *[2]*memDir
}

func (op dirOp) apply(names map[string]*memInode) {
	if op.from != "" {
		delete(names, op.from)
	}
	if op.inode == nil {
		delete(names, op.name)
	} else {
		names[op.name] = op.inode
	}
}

// memInode is a file's content, also as seen and as on the disk.
type memInode struct {
	data    []byte
	durable []byte
	pending []fileOp
}

// fileOp is one change of a file: data written at offset, or, if data is nil,
// the length set to offset.
type fileOp struct {
	offset int64
	data   []byte
}

func (op fileOp) apply(b []byte) []byte {
	if op.data == nil {
		return resize(b, op.offset)
	}
	if end := op.offset + int64(len(op.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[op.offset:], op.data)
	return b
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		// The part that is cut off must read as zeros if the file grows again.
		clear(b[size:])
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// NewMem returns an empty file system with the root directory "/" and the
// current directory ".".
func NewMem() *Mem {
	m := &Mem{dirs: map[string]*memDir{}}
	m.dirs["/"], m.dirs["."] = newMemDir(), newMemDir()
	return m
}

func newMemDir() *memDir {
	return &memDir{names: map[string]*memInode{}, durable: map[string]*memInode{}}
}

// CrashClone returns what the disk may hold if the power were lost now. The same seed gives the same choice. If
// seed%4 is 0, nothing survives that was not synced; if it is 1, everything does. Else each sector of each
// write, each truncation and each change of a directory survives with a probability that depends on the seed.
// Nothing is locked in the clone.
func (m *Mem) CrashClone(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 0))
	odds := rng.Float64()
	switch seed % 4 {
	case 0:
		odds = 0
	case 1:
		odds = 1
	}
	survives := func() bool { return rng.Float64() < odds }

	clone := &Mem{dirs: map[string]*memDir{}}
	inodes, across := map[*memInode]*memInode{}, map[*[2]*memDir]bool{}
	for _, path := range slices.Sorted(maps.Keys(m.dirs)) {
		d := m.dirs[path]
		left := map[string]*memInode{}
		maps.Copy(left, d.durable)
		for _, op := range d.pending {
			kept, decided := across[op.across]
			if !decided || op.across == nil {
				kept = survives()
				across[op.across] = kept
			}
			if kept {
				op.apply(left)
			}
		}
		after := newMemDir()
		for _, name := range slices.Sorted(maps.Keys(left)) {
			inode := left[name]
			if inodes[inode] == nil {
				inodes[inode] = inode.crash(survives)
			}
			after.names[name], after.durable[name] = inodes[inode], inodes[inode]
		}
		clone.dirs[path] = after
	}
	for _, names := range slices.Backward(m.moved) {
		if clone.dirs[names[0]] == nil && !survives() { // else another directory has the name
			clone.moveDirs(names[1], names[0])
		}
	}
	return clone
}

// moveDirs gives a directory, and everything below it, another path.
func (m *Mem) moveDirs(from, to string) {
	for _, path := range slices.Sorted(maps.Keys(m.dirs)) {
		if path == from || strings.HasPrefix(path, from+"/") {
			m.dirs[to+path[len(from):]] = m.dirs[path]
			delete(m.dirs, path)
		}
	}
}

func (n *memInode) crash(survives func() bool) *memInode {
	left := slices.Clone(n.durable)
	for _, op := range n.pending {
		if op.data == nil {
			if survives() {
				left = op.apply(left)
			}
			continue
		}
		for data, offset := op.data, op.offset; len(data) > 0; {
			sector := min(SectorBytes-int(offset%SectorBytes), len(data))
			if survives() {
				left = fileOp{offset, data[:sector]}.apply(left)
			}
			data, offset = data[sector:], offset+int64(sector)
		}
	}
	return &memInode{data: left, durable: slices.Clone(left)}
}

// ForgetUnsynced does to a file what the kernel does after a failed write-back: what was not synced stays
// visible, but no later sync makes it durable. Only writing it again does.
func (m *Mem) ForgetUnsynced(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find("forget", name)
	if err != nil {
		return err
	}
	inode := d.names[base]
	if inode == nil {
		return &fs.PathError{Op: "forget", Path: name, Err: fs.ErrNotExist}
	}
	inode.pending = nil
	return nil
}

// find returns the directory of name and name's last element.
func (m *Mem) find(op, name string) (*memDir, string, error) {
	name = filepath.Clean(name)
	d := m.dirs[filepath.Dir(name)]
	if d == nil {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	if m.dirs[name] != nil {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return d, filepath.Base(name), nil
}

func (m *Mem) open(op, name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find(op, name)
	if err != nil {
		return nil, err
	}
	inode := d.names[base]
	if inode == nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{fs: m, name: name, inode: inode, writable: writable}, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find("create", name)
	if err != nil {
		return nil, err
	}
	inode := d.names[base]
	if inode == nil {
		inode = &memInode{}
		d.change(dirOp{name: base, inode: inode})
	} else {
		inode.change(fileOp{offset: 0})
	}
	return &memFile{fs: m, name: name, inode: inode, writable: true}, nil
}

func (d *memDir) change(op dirOp) {
	d.pending = append(d.pending, op)
	op.apply(d.names)
}

func (n *memInode) change(op fileOp) {
	n.pending = append(n.pending, op)
	n.data = op.apply(n.data)
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open("open", name, false) }

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open("open", name, true) }

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find("remove", name)
	if err != nil {
		return err
	}
	if d.names[base] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	d.change(dirOp{name: base})
	return nil
}

// RemoveAll implements FS. Removed directories are gone durably.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	for path := range m.dirs {
		if path == name || strings.HasPrefix(path, name+"/") {
			delete(m.dirs, path)
		}
	}
	if d := m.dirs[filepath.Dir(name)]; d != nil && d.names[filepath.Base(name)] != nil {
		d.change(dirOp{name: filepath.Base(name)})
	}
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldname, newname = filepath.Clean(oldname), filepath.Clean(newname)
	if m.dirs[oldname] != nil {
		if target, to, err := m.find("rename", newname); err != nil {
			return err
		} else if target.names[to] != nil {
			return &fs.PathError{Op: "rename", Path: newname, Err: fs.ErrExist}
		}
		m.moveDirs(oldname, newname)
		m.moved = append(m.moved, [2]string{oldname, newname})
		return nil
	}
	d, from, err := m.find("rename", oldname)
	if err != nil {
		return err
	}
	if d.names[from] == nil {
		return &fs.PathError{Op: "rename", Path: oldname, Err: fs.ErrNotExist}
	}
	target, to, err := m.find("rename", newname)
	if err != nil {
		return err
	}
	inode := d.names[from]
	switch {
	case d != target:
		both := &[2]*memDir{d, target}
		target.change(dirOp{name: to, inode: inode, across: both})
		d.change(dirOp{name: from, across: both})
	case from == to:
		return &fs.PathError{Op: "rename", Path: newname, Err: fs.ErrInvalid}
	default:
		d.change(dirOp{name: to, from: from, inode: inode})
	}
	return nil
}

// Link implements FS.
func (m *Mem) Link(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, from, err := m.find("link", oldname)
	if err != nil {
		return err
	}
	target, to, err := m.find("link", newname)
	if err != nil {
		return err
	}
	switch {
	case d.names[from] == nil:
		return &fs.PathError{Op: "link", Path: oldname, Err: fs.ErrNotExist}
	case target.names[to] != nil:
		return &fs.PathError{Op: "link", Path: newname, Err: fs.ErrExist}
	}
	target.change(dirOp{name: to, inode: d.names[from]})
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for dir = filepath.Clean(dir); m.dirs[dir] == nil; dir = filepath.Dir(dir) {
		if d := m.dirs[filepath.Dir(dir)]; d != nil && d.names[filepath.Base(dir)] != nil {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrExist}
		}
		m.dirs[dir] = newMemDir()
	}
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	d := m.dirs[dir]
	if d == nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: fs.ErrNotExist}
	}
	names := slices.Sorted(maps.Keys(d.names))
	for path := range m.dirs {
		if path != dir && filepath.Dir(path) == dir {
			names = append(names, filepath.Base(path))
		}
	}
	sort.Strings(names)
	return names, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirs[filepath.Clean(name)] != nil {
		return Info{Dir: true}, nil
	}
	d, base, err := m.find("stat", name)
	if err != nil {
		return Info{}, err
	}
	inode := d.names[base]
	if inode == nil {
		return Info{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return Info{Size: int64(len(inode.data))}, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dirs[filepath.Clean(dir)]
	if d == nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: fs.ErrNotExist}
	}
	d.sync()
	m.moved = slices.DeleteFunc(m.moved, func(names [2]string) bool {
		return filepath.Dir(names[0]) == filepath.Clean(dir) || filepath.Dir(names[1]) == filepath.Clean(dir)
	})
	return nil
}

// sync makes a directory's changes durable. If a file was renamed between two directories, the changes of both
// are made durable.
func (d *memDir) sync() {
	pending := d.pending
	d.pending = nil
	for _, op := range pending {
		op.apply(d.durable)
		if op.across != nil {
			op.across[0].sync()
			op.across[1].sync()
		}
	}
}

// Lock implements FS.
func (m *Mem) Lock(dir string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dirs[filepath.Clean(dir)]
	switch {
	case d == nil:
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: fs.ErrNotExist}
	case d.locked:
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: ErrLocked}
	}
	d.locked = true
	return &memLock{fs: m, dir: d}, nil
}

type memLock struct {
	fs  *Mem
	dir *memDir
}

// Close releases the lock; later calls do nothing.
func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.dir != nil {
		l.dir.locked = false
		l.dir = nil
	}
	return nil
}
