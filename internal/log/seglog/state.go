package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"path/filepath"

	"github.com/quorate/quorate/internal/log/vfs"
)

// The state file. Part of the format (see the package comment).
const (
	stateName      = "state"
	stateTemporary = "state.tmp"
	stateMagic     = "QLOG"
	slotMagic      = "QHST"
	stateSlots     = 2
	// Each part is one sector, so that a torn write of one part leaves the others alone.
	stateSectorBytes = 512
	stateBytes       = (1 + stateSlots) * stateSectorBytes
	identityBytes    = 24
	slotBytes        = 40
)

// HardState is what Raft must not forget.
type HardState struct{ Term, Vote, Commit uint64 }

// stateFile keeps the hard state.
type stateFile struct {
	file vfs.File
	// current is the content of slot, the newest slot. synced is the slot that was synced last: it is never
	// written over.
	current  HardState
	sequence uint64
	slot     int
	synced   int
}

func encodeIdentity(identity [16]byte) []byte {
	b := append(make([]byte, 0, stateSectorBytes), stateMagic...)
	b = binary.LittleEndian.AppendUint16(b, Version)
	b = append(b, 0, 0)
	b = append(b, identity[:]...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
	return b[:stateSectorBytes]
}

func encodeSlot(sequence uint64, hs HardState) []byte {
	b := append(make([]byte, 0, stateSectorBytes), slotMagic...)
	b = binary.LittleEndian.AppendUint16(b, Version)
	b = append(b, 0, 0)
	for _, v := range []uint64{sequence, hs.Term, hs.Vote, hs.Commit} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
	return b[:stateSectorBytes]
}

func crcValid(b []byte, n int) bool {
	return crc32.Checksum(b[:n], castagnoli()) == binary.LittleEndian.Uint32(b[n:])
}

// decodeState checks the file's identity and finds the newest slot.
func decodeState(b []byte, identity [16]byte) (s stateFile, err error) {
	if len(b) < identityBytes+4 || string(b[:4]) != stateMagic {
		return s, fmt.Errorf("%w: %s has no magic", ErrFormat, stateName)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != Version {
		return s, fmt.Errorf("%w: version %d, this quorate reads %d: it was written by another quorate", ErrFormat, v, Version)
	}
	if !crcValid(b, identityBytes) {
		return s, &CorruptError{File: stateName, Detail: "wrong checksum of the identity"}
	}
	if found := [16]byte(b[8:]); found != identity {
		return s, fmt.Errorf("%w: it has identity %x, this node %x", ErrIdentity, found, identity)
	}
	if len(b) != stateBytes {
		return s, &CorruptError{File: stateName, Offset: int64(len(b)), Detail: fmt.Sprintf("file has %d bytes, not %d", len(b), stateBytes)}
	}
	var older HardState
	for slot := range stateSlots {
		sector := b[(1+slot)*stateSectorBytes:][:stateSectorBytes]
		if string(sector[:4]) != slotMagic || !crcValid(sector, slotBytes) {
			continue
		}
		sequence := binary.LittleEndian.Uint64(sector[8:])
		hs := HardState{
			Term:   binary.LittleEndian.Uint64(sector[16:]),
			Vote:   binary.LittleEndian.Uint64(sector[24:]),
			Commit: binary.LittleEndian.Uint64(sector[32:]),
		}
		if sequence > s.sequence {
			older, s.current, s.sequence, s.slot = s.current, hs, sequence, slot
		} else {
			older = hs
		}
	}
	if s.sequence == 0 {
		return s, &CorruptError{File: stateName, Offset: stateSectorBytes, Detail: "neither hard state is valid"}
	}
	if s.current.Term < older.Term || s.current.Commit < older.Commit {
		return s, &CorruptError{File: stateName, Offset: stateSectorBytes, Detail: fmt.Sprintf("hard state went back from %+v to %+v", older, s.current)}
	}
	s.synced = s.slot
	return s, nil
}

// readState reads the state file and changes nothing.
func readState(fs vfs.FS, dir string, identity [16]byte) (stateFile, error) {
	f, err := fs.Open(filepath.Join(dir, stateName))
	if err != nil {
		return stateFile{}, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, stateBytes+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return stateFile{}, err
	}
	return decodeState(b[:n], identity)
}

// createState makes the state file of a new log, durably.
func createState(fs vfs.FS, dir string, identity [16]byte) error {
	b := make([]byte, stateBytes)
	copy(b, encodeIdentity(identity))
	copy(b[stateSectorBytes:], encodeSlot(1, HardState{}))
	return createDurably(fs, dir, stateTemporary, stateName, b)
}

// createDurably makes a file that has all of its content or does not exist. A file that has the name is
// replaced. ErrFull: nothing was done. vfs.Replace does not say that.
func createDurably(fs vfs.FS, dir, temporary, name string, content []byte) error {
	temporary, name = filepath.Join(dir, temporary), filepath.Join(dir, name)
	f, err := fs.Create(temporary)
	if err != nil {
		return full(err)
	}
	_, err = f.WriteAt(content, 0)
	err = full(err)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = full(fs.Rename(temporary, name))
	}
	if errors.Is(err, ErrFull) {
		return removeTemporary(fs, temporary, err)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	return err
}

// removeTemporary removes a file for which the disk had no room, and returns full.
func removeTemporary(fs vfs.FS, temporary string, full error) error {
	if err := fs.Remove(temporary); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", temporary, err)
	}
	return full
}

// open opens the file for writing and makes the newest slot durable: the process that wrote it may have died
// before the sync, or because of it. It writes that slot over itself, never the other one, which may be the
// only one on disk.
func (s *stateFile) open(fs vfs.FS, dir string) error {
	f, err := fs.OpenReadWrite(filepath.Join(dir, stateName))
	if err != nil {
		return err
	}
	s.file = f
	if err := s.write(s.slot, s.sequence, s.current); err != nil {
		return err
	}
	return f.SyncData()
}

func (s *stateFile) write(slot int, sequence uint64, hs HardState) error {
	_, err := s.file.WriteAt(encodeSlot(sequence, hs), int64(1+slot)*stateSectorBytes)
	return err
}

// save stores hs, durably unless only the commit index is new. It returns whether it synced.
func (s *stateFile) save(hs HardState) (synced bool, err error) {
	if hs == s.current {
		return false, nil
	}
	slot := 1 - s.synced
	// The slots have their place on the disk, even if it is full. Where a file system copies on write, the
	// write may fail; then at most a commit index is lost.
	if err := s.write(slot, s.sequence+1, hs); err != nil {
		return false, full(err)
	}
	mustSync := hs.Term != s.current.Term || hs.Vote != s.current.Vote
	if mustSync {
		if err := s.file.SyncData(); err != nil {
			return false, err
		}
		s.synced = slot
	}
	s.current, s.sequence, s.slot = hs, s.sequence+1, slot
	return mustSync, nil
}
