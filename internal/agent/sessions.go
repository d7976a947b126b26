package agent

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/front/router"
)

// controlSessions says who is connected through this node's ports.
func (a *Agent) controlSessions(_ context.Context, r control.Request, args cluster.SessionsRequest) (operate.Done, error) {
	if err := operate.CheckLast(args.Last); err != nil {
		return operate.Done{}, err
	}
	all := a.sessionsOf("read_write", a.router)
	if reads := a.reads.Router(); reads != nil {
		all = append(all, a.sessionsOf("read_only", reads)...)
	}
	found := cluster.Sessions{Node: a.self.Name}
	for _, s := range all {
		if s.Client != "" {
			found.Clients++
		}
	}
	slices.SortFunc(all, func(s, t cluster.Session) int { return s.Since.Compare(t.Since) })
	found.Newest = all[max(0, len(all)-args.Last):]
	return operate.Done{Result: found, ReadOnly: true}, nil
}

// sessionsOf are the clients of one port.
func (a *Agent) sessionsOf(port string, by *router.Router) []cluster.Session {
	now := by.Sessions()
	all := make([]cluster.Session, 0, len(now))
	for _, s := range now {
		is := cluster.Session{Port: port, State: cluster.SessionHeld, Node: a.self.Name, Since: s.Since.UTC().Truncate(time.Millisecond)}
		if s.From == 0 {
			is.Client = s.Client.String()
		} else {
			is.Node, is.Stream = a.board.Name(s.From), tcpAddress(s.Client)
		}
		if s.Server != nil {
			is.State, is.Target = cluster.SessionRouted, a.board.Name(s.Target.Node)
			if s.Target.Local {
				is.Target, is.Server = a.self.Name, tcpAddress(s.Server)
			} else {
				is.Stream = tcpAddress(s.Server)
			}
		}
		all = append(all, is)
	}
	return all
}

// tcpAddress returns a TCP address; "" for any other, which means nothing outside of this process.
func tcpAddress(a net.Addr) string {
	if _, is := a.(*net.TCPAddr); !is {
		return ""
	}
	return a.String()
}
