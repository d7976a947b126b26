package standstill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
)

// GreetTimeout is how long a mysqld that has not answered a poll in time may take to greet a new
// connection. Both times together are how long a client waits when a primary's mysqld stands still
// while its agent goes on.
const GreetTimeout = 2 * time.Second

// The keys of the troubles with mysqld's disk, among the board's troubles.
const (
	aboutDisk  = "disk"
	aboutSpace = "space"
)

// Board is where a Watch says what is wrong, and reads what the node is.
type Board interface {
	Own() status.Node
	Trouble(about string) string
	SetTrouble(about, text string) (news bool)
}

// Watch notices that one node's mysqld stands still. Make one with New.
type Watch struct {
	board Board
	probe string
	disk  diskProbe
}

// New returns a Watch that writes to the file probe, which is on mysqld's disk. It starts nothing.
func New(board Board, probe string) *Watch { return &Watch{board: board, probe: probe} }

// Run writes to mysqld's disk until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	w.disk.run(ctx, func() error { return writeProbe(w.probe) })
	return nil
}

// Greets looks whether a mysqld that has not answered a poll stands still: it is stopped, or every thread waits for a
// disk that hangs. Then no other node would end the wait of a primary's clients, or, during a promotion, of all clients
// of the cluster: doubt is called.
//
// A greeting needs no lock, no session of ours and no free connection: a server that is only slow,
// or full, sends one. Greets asks for a new greeting, because after a pause of the whole machine
// the poll has failed although mysqld is well.
func (w *Watch) Greets(ctx context.Context, role status.Role, socket string, doubt func(reason string)) {
	switch role {
	case status.RolePrimary, status.RolePromoting, status.RoleReplica, status.RoleUnverified:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, GreetTimeout)
	defer cancel()
	if silent(ctx, socket) {
		doubt("mysqld does not answer")
	}
}

// silent says whether mysqld takes a connection and sends nothing before ctx's
// deadline. An error is not silence: mysqld is ending, and its end comes as an input.
func silent(ctx context.Context, socket string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(deadline); err != nil {
			return false
		}
	}
	_, err = conn.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// Commits notes which transactions mysqld has. behind: it lacks some.
func (w *Watch) Commits(executed string, behind bool, now time.Time) {
	w.disk.commits(executed, now)
	if !behind {
		w.board.SetTrouble(aboutSpace, "") // it has written all that it received
	}
}

// Disk reports that mysqld's disk hangs. doubt is called for a primary that stands still on it: all its clients wait,
// while its agent goes on leading. A replica is left alone: its readers may find their data in memory. writers counts
// the statements that have been writing for longer than Patience.
func (w *Watch) Disk(role status.Role, writers func() (int, error), doubt func(reason string)) {
	now := time.Now()
	took := w.disk.hangs(now)
	if took == 0 {
		w.board.SetTrouble(aboutDisk, "")
		return
	}
	reason := fmt.Sprintf("mysqld's disk has not answered for %s", took.Round(time.Second))
	w.board.SetTrouble(aboutDisk, reason)
	if role != status.RolePrimary && role != status.RolePromoting {
		return
	}
	behind := role == status.RolePromoting && w.board.Own().LagTransactions > 0
	if w.disk.standsStill(now, behind, writers) {
		doubt(reason + ", and it commits nothing")
	}
}

// WatchSpace looks, until mysqld has ended, whether mysqld waits for space on its disk. doubt is called for a primary:
// its clients would wait until somebody makes room, and up to a minute longer. Without room
// mysqld cannot be started again; the agent tries that again and again, with a pause, and its status
// says so. A replica is left alone: its readers go on, and it goes on by itself.
func (w *Watch) WatchSpace(full <-chan string, ended <-chan struct{}, doubt func(reason string)) {
	for {
		select {
		case text := <-full:
			w.full("mysqld's disk is full: "+text, doubt)
		case <-ended:
			w.board.SetTrouble(aboutSpace, "")
			w.board.SetTrouble(aboutDisk, "")
			return
		}
	}
}

// full acts in every role but a replica's: a client's session may wait, also in the last moments
// of a primary that is closing its writes.
func (w *Watch) full(reason string, doubt func(reason string)) {
	switch w.board.Own().Role {
	case status.RoleReplica, status.RoleUnverified:
		w.board.SetTrouble(aboutSpace, reason+": it cannot take over before mysqld goes on, up to a minute after there is space")
	default:
		doubt(reason)
	}
}

// Full says that mysqld waits for space on its disk; "" = it does not.
func (w *Watch) Full() string { return w.board.Trouble(aboutSpace) }
