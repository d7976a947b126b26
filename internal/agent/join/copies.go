package join

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

const (
	// copyConnectionsMax bounds the connections of one copy: mysqld opens five, and new ones
	// for those that were cut off.
	copyConnectionsMax = 8
	// copyIdleMax is how long a copy's password is good without a connection.
	copyIdleMax = 10 * time.Minute
	// copiesMax bounds the copies: a cluster has at most 9 members. A removed node may have left a copy behind.
	copiesMax = 9
)

var errNoPlan = errors.New("the joining node has no plan for the copy: it must ask for one first")

// DataCopies are the copies of a member's mysqld that joining nodes may make. The zero value has none. Its methods
// may be called from any goroutine.
type DataCopies struct {
	mu sync.Mutex
	of map[string]*DataCopy // by the node that joins
}

// DataCopy is one copy, by one node.
type DataCopy struct {
	// Password lets the other mysqld in as the account that copies, on this node and for this copy only.
	Password string

	open  int
	used  time.Time     // when the password was told, or the last connection ended
	ended chan struct{} // closed when its connections are to end
}

// Ended is closed when the copy's connections are to end.
func (c *DataCopy) Ended() <-chan struct{} { return c.ended }

// Begin ends the copy that a node may be making, and returns the password of its next
// copy.
func (d *DataCopies) Begin(node string, now time.Time) (password string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before := d.of[node]; before != nil {
		close(before.ended)
	}
	delete(d.of, node)
	d.forget(now)
	if d.of == nil {
		d.of = map[string]*DataCopy{}
	}
	c := &DataCopy{Password: rand.Text(), used: now, ended: make(chan struct{})}
	d.of[node] = c
	return c.Password
}

// forget drops the copies whose password is not good any more, and then, until there is room, the one without
// connections that was used longest ago. The caller ends the connections of nodes that do not join any more, so
// copies with connections are fewer than members. d.mu is held.
func (d *DataCopies) forget(now time.Time) {
	for {
		oldest := ""
		for node, c := range d.of {
			if c.open == 0 && (oldest == "" || c.used.Before(d.of[oldest].used)) {
				oldest = node
			}
		}
		if oldest == "" || len(d.of) < copiesMax && now.Sub(d.of[oldest].used) <= copyIdleMax {
			return
		}
		delete(d.of, oldest)
	}
}

// Enter counts a connection of a node's copy in. leave counts it out.
func (d *DataCopies) Enter(node string, now time.Time) (c *DataCopy, leave func(now time.Time), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c = d.of[node]
	switch {
	case c == nil || c.open == 0 && now.Sub(c.used) > copyIdleMax:
		return nil, nil, errNoPlan
	case c.open >= copyConnectionsMax:
		return nil, nil, errors.New("the copy has as many connections as it may have")
	}
	c.open++
	return c, func(now time.Time) {
		d.mu.Lock()
		defer d.mu.Unlock()
		c.open--
		c.used = now
	}, nil
}
