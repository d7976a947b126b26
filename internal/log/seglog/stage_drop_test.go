package seglog

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// freeingFS frees the blocks of stages as a kernel does, but without an end: with the last name, or later with the last
// descriptor.
type freeingFS struct {
	vfs.FS
	freeing chan struct{} // gets an element when blocks are being freed
	freed   chan struct{} // closed when they are free

	mu    sync.Mutex
	names map[string]*namedInode
}

type namedInode struct {
	open     int
	nameless bool
}

type namelessFile struct {
	vfs.File
	fs    *freeingFS
	inode *namedInode
}

func (s *freeingFS) opened(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	inode := s.names[name]
	if inode == nil {
		inode = &namedInode{}
		s.names[name] = inode
	}
	inode.open++
	return &namelessFile{f, s, inode}, nil
}

func (s *freeingFS) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	return s.opened(f, name, err)
}

func (s *freeingFS) Open(name string) (vfs.File, error) {
	f, err := s.FS.Open(name)
	return s.opened(f, name, err)
}

func (s *freeingFS) free() {
	s.freeing <- struct{}{}
	<-s.freed
}

func (s *freeingFS) Remove(name string) error {
	s.mu.Lock()
	inode := s.names[name]
	delete(s.names, name)
	last := false
	if inode != nil {
		inode.nameless, last = true, inode.open == 0
	}
	s.mu.Unlock()
	err := s.FS.Remove(name)
	if last && strings.HasPrefix(filepath.Base(name), stagePrefix) {
		s.free()
	}
	return err
}

func (f *namelessFile) Close() error {
	f.fs.mu.Lock()
	f.inode.open--
	last := f.inode.open == 0 && f.inode.nameless
	f.fs.mu.Unlock()
	err := f.File.Close()
	if last {
		f.fs.free()
	}
	return err
}

// TestDroppedStageDelaysNobody: to free the blocks of a large stage takes seconds. In that time terms, votes and
// entries are stored, and other stages come and are named.
func TestDroppedStageDelaysNobody(t *testing.T) {
	dropAll := func(l *Log) error {
		return l.DropStages(func(id entry.StageID) bool { return id != stageID(9) })
	}
	for name, end := range map[string]func(*Log, *Stage) error{
		"abort": func(_ *Log, s *Stage) error { return s.Abort() },
		"drop": func(l *Log, s *Stage) error {
			if err := s.Finish(uint64(s.bytes), s.crc); err != nil {
				return err
			}
			return dropAll(l)
		},
		"drop, then abort": func(l *Log, s *Stage) error {
			if err := dropAll(l); err != nil {
				return err
			}
			return s.Abort()
		},
	} {
		t.Run(name, func(t *testing.T) {
			slow := &freeingFS{
				FS: vfs.NewMem(), freeing: make(chan struct{}, 1), freed: make(chan struct{}), names: map[string]*namedInode{},
			}
			l := mustOpen(t, smallOptions(slow))
			s, err := l.CreateStage(stageID(9))
			if err == nil {
				_, err = s.Write([]byte("abandoned"))
			}
			if err != nil {
				t.Fatal(err)
			}
			dropped := make(chan error, 1)
			go func() { dropped <- end(l, s) }()
			<-slow.freeing

			work := make(chan error, 1)
			go func() { work <- workBeside(l) }()
			select {
			case err = <-work:
			case <-time.After(30 * time.Second):
				t.Error("the log waits for the blocks of a stage that was dropped")
			}
			close(slow.freed)
			if dropErr := <-dropped; err != nil || dropErr != nil {
				t.Error(err, dropErr)
			}
		})
	}
}

// workBeside does what must not wait while stage 9 is being dropped.
func workBeside(l *Log) error {
	if err := l.Append(nil, &HardState{Term: 1, Vote: 2}); err != nil {
		return err
	}
	if err := l.Append([]Entry{plain(1, 1, 10)}, nil); err != nil {
		return err
	}
	e, raw := staged(2, 1, 1, 1, 100)
	if err := putStage(l, stageID(2), raw); err != nil {
		return err
	}
	if err := l.Append([]Entry{e}, nil); err != nil {
		return err
	}
	_, err := l.CreateStage(stageID(9))
	return err
}

// TestAppendWithoutStagesTakesNoLockOfTheirs: a term and its vote do not wait for the making of a stage.
func TestAppendWithoutStagesTakesNoLockOfTheirs(t *testing.T) {
	l := mustOpen(t, smallOptions(vfs.NewMem()))
	l.stagesMu.Lock()
	done := make(chan error, 1)
	go func() { done <- l.Append([]Entry{plain(1, 1, 10)}, &HardState{Term: 1, Vote: 2}) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Append waits for the lock of the stages")
	}
	l.stagesMu.Unlock()
}

// TestRemovedStageIsDropped: a stage that an append has made a stage again can be dropped after that append.
func TestRemovedStageIsDropped(t *testing.T) {
	l := mustOpen(t, smallOptions(vfs.NewMem()))
	e, raw := staged(2, 1, 1, 1, 100)
	mustAppend(t, l, nil, plain(1, 1, 10))
	mustAppendStaged(t, l, nil, e, raw)
	mustAppend(t, l, nil, plain(2, 2, 10))
	if !l.HasStage(stageID(2)) {
		t.Fatal("the stage went with its entry")
	}
	if err := l.DropStages(func(entry.StageID) bool { return false }); err != nil || l.HasStage(stageID(2)) {
		t.Fatalf("the stage is still here: %v", err)
	}
}
