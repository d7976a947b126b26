package mysqld

import "golang.org/x/sys/unix"

// withoutAmbient takes from the calling thread, which must be locked, the capabilities that
// a child would inherit. An agent that is not root may have CAP_NET_ADMIN so, for the fence
// of mysqld's own port: mysqld must not. An error is a kernel before 4.3, which has none.
func withoutAmbient() {
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}
