package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Door lets a client of another host into the local mysqld, as one account and no other.
// The client's password is not the account's: that never leaves this host.
type Door struct {
	// Socket is the path of mysqld's Unix socket, Version what the client is told of it.
	Socket, Version string
	// User and Password log in to mysqld.
	User, Password string
	// ClientPassword is what the client, which says the same User, has to know.
	ClientPassword string
}

// Open logs a client in, and then itself for it. It returns the connection to mysqld: both
// connections are then where commands begin, and what comes is to be passed on as it is. The
// one to mysqld takes from the client what copies data (CLONE INSTANCE) alone, else ErrNoCopy.
// The client is the caller's to close. mysqld is not even asked for a client that is
// refused.
func (d Door) Open(ctx context.Context, client net.Conn) (net.Conn, error) {
	err := handshake(ctx, client, func(w *wire) error {
		return greet(w, d.Version, 1, d.User, d.ClientPassword)
	})
	if err != nil {
		return nil, fmt.Errorf("log a client in: %w", err)
	}
	server, err := new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	if err != nil {
		return nil, fmt.Errorf("connect to mysqld: %w", err)
	}
	err = handshake(ctx, server, func(w *wire) error { return login(w, d.User, d.Password) })
	if err != nil {
		_ = server.Close()
		return nil, fmt.Errorf("log in to mysqld: %w", err)
	}
	return &copying{Conn: server}, nil
}

// ErrNoCopy is returned for what a client of a Door says that copies nothing.
var ErrNoCopy = errors.New("mysqlwire: a command that copies nothing")

// Commands of a client that copies. Those from comInit on are of the copy's own protocol, and mysqld goes back to
// its usual one without telling: so each command may only be one that does no harm in either.
const (
	comInit   = 0x01 // or comQuit
	comReinit = 0x03 // or comQuery
	comExit   = 0x06 // those in between need rights, or are nothing, where they are not of that protocol
	comClone  = 0x20
)

// mayCopy tells whether a command may be passed on to mysqld. A statement that begins as a comReinit is none: these are no
// spaces. With query attributes (CLIENT_QUERY_ATTRIBUTES) it could be one, so login must not ask for them.
func mayCopy(payload []byte) bool {
	if len(payload) == 0 {
		return false
	}
	switch c := payload[0]; {
	case c == comInit && len(payload) == 1: // comQuit
		return true
	case c == comInit, c == comReinit:
		return begins(payload[1:])
	case c > comInit && c <= comExit, c == comResetConnection, c == comClone:
		return true
	}
	return false
}

// begins tells whether a copy begins so, or goes on. With the flag the donor takes no backup lock, which would have DDL wait for
// as long as the joiner likes; a joiner asks for one with clone_block_ddl alone, which is off.
//
//	+-------------+---------------------+----
//	| version u32 | timeout, flag  u32  | …      version: 0x0100 to 0x0103 so far; flag: bit 31, no backup lock
//	+-------------+---------------------+----
func begins(copy []byte) bool {
	return len(copy) >= 8 && copy[0] < '\t' && copy[1] == 1 && copy[2] == 0 && copy[3] == 0 && copy[7]&0x80 != 0
}

// copying is a connection to mysqld that takes what a client says that copies, and nothing else.
type copying struct {
	net.Conn
	// part is the beginning of a packet that is not complete.
	part []byte
}

// Write implements net.Conn.
func (c *copying) Write(b []byte) (int, error) {
	c.part = append(c.part, b...)
	whole := 0
	for rest := c.part; len(rest) >= packetHeaderBytes; rest = c.part[whole:] {
		end := packetHeaderBytes + payloadBytes(rest)
		if end > loginBytesMax {
			return 0, fmt.Errorf("%w: %w: %d bytes", ErrNoCopy, ErrPacketTooLarge, end)
		}
		if len(rest) < end {
			break
		}
		if !mayCopy(rest[packetHeaderBytes:end]) {
			return 0, fmt.Errorf("%w: %.1x", ErrNoCopy, rest[packetHeaderBytes:end])
		}
		whole += end
	}
	_, err := c.Conn.Write(c.part[:whole])
	c.part = append(c.part[:0], c.part[whole:]...)
	return len(b), err
}

// handshake runs do on a connection that is read directly afterwards: nothing may have
// come behind it.
func handshake(ctx context.Context, conn net.Conn, do func(*wire) error) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	w := &wire{conn: conn, in: newPacketReader(conn, doorBufferBytes, loginBytesMax)}
	err := do(w)
	if err == nil && w.in.r.Buffered() > 0 {
		err = fmt.Errorf("%w: more than a login", ErrMalformed)
	}
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return errors.Join(err, conn.SetDeadline(time.Time{}))
}

// doorBufferBytes is read at once of a login, which is shorter.
const doorBufferBytes = 4 << 10
