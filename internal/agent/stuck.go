package agent

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// greetTimeout is how long a mysqld that has not answered a poll in time may take to greet a new
// connection. Both times together are how long a client waits when a primary's mysqld stands still
// while its agent goes on.
const greetTimeout = 4 * watchInterval

// pollGreeting fences a mysqld that stands still: it is stopped, or every thread waits for a disk
// that hangs. Its agent goes on leading with perfect heartbeats. So no other node would end the wait
// of its clients, or, during a promotion, of all clients of the cluster.
//
// A greeting needs no lock, no session of ours and no free connection: a server that is only slow,
// or full, sends one. The agent asks for a new greeting, because after a pause of the whole machine
// the poll has failed and mysqld is well.
func (a *Agent) pollGreeting(ctx context.Context, p *mysqld.Process, role status.Role) {
	switch role {
	case status.RolePrimary, status.RolePromoting, status.RoleReplica, status.RoleUnverified:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	if silent(ctx, a.server.Socket()) {
		a.doubt(p, "mysqld does not answer")
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
