package mysqld

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// roomBytes is the length of the file room. Before InnoDB deletes the temporary tables of the mysqld before it, a start
// writes the incarnation, the option file and the init file, some tens of KiB together, and mysqld a pid file and the
// beginning of a binlog.
const roomBytes = 1 << 20

// freeRoom frees what the start of a mysqld does not need: the file room, and the files of a killed mysqld. The disk may
// be full of these. The caller holds the lock, so no mysqld uses them.
func (s *Server) freeRoom(id osIdentity) error {
	_ = os.Remove(s.paths.room) // if that fails, the start has what the disk has
	for _, dir := range []string{s.paths.tmp, s.paths.run} {
		if err := emptyDir(dir, id); err != nil {
			return err
		}
	}
	return nil
}

// holdRoom holds room back for the next start, if the disk has it. It may be called again at any time, so it does not
// matter where a crash ends it. It writes nothing, so it does not wait for a slow disk.
func (s *Server) holdRoom() {
	err := s.allocateRoom()
	if err != nil {
		_ = os.Remove(s.paths.room)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return // the file system cannot set space aside
	}
	if failed := s.roomless.Swap(err != nil); err != nil && !failed {
		s.cfg.Logger.Warn("no room can be held back for the next start of mysqld", "error", err)
	}
}

func (s *Server) allocateRoom() error {
	f, err := os.OpenFile(s.paths.room, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	// Some file systems reserve what is there already a second time, and fail if they are full.
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && st.Blocks*512 < roomBytes {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Fallocate(int(f.Fd()), 0, 0, roomBytes)
		}
	}
	return errors.Join(err, f.Close())
}
