package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Door lets a client of another host into the local mysqld, as one account and no other. The
// client has a password of its own: the account's password never leaves this host.
type Door struct {
	// Socket is the path of mysqld's Unix socket. Version is the server version that the client
	// is told.
	Socket, Version string
	// User and Password log in to mysqld.
	User, Password string
	// ClientPassword is the password that the client must know. The client gives the same User.
	ClientPassword string
}

// Open logs a client in, and then logs in to mysqld for it. It returns the connection to
// mysqld. Both connections are then ready for commands, and the caller passes the bytes on
// unchanged. Write on the returned connection takes only commands that copy data (CLONE
// INSTANCE), and returns ErrNoCopy for any other. The caller closes client. If the client is
// refused, mysqld is not contacted.
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

// ErrNoCopy is returned where a client of a Door sends a command that does not copy data.
var ErrNoCopy = errors.New("mysqlwire: a command that copies nothing")

// Commands of a client that copies data. Behind comClone, the clone protocol has commands of its own, from
// comInit to comExit, and mysqld goes back to the usual protocol without notice. So a command may pass only if it
// does no harm in either protocol.
const (
	comInit   = 0x01 // or comQuit
	comReinit = 0x03 // or comQuery
	comExit   = 0x06 // in the usual protocol, the codes in between need privileges or do not exist
	comClone  = 0x20
)

// mayCopy tells whether a command may be passed on to mysqld. A text that begins like a comReinit is no statement:
// SQL does not skip its first bytes as spaces. With query attributes (CLIENT_QUERY_ATTRIBUTES) it could be a
// statement, so login must not ask for them.
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

// begins tells whether a copy begins or resumes with these arguments. The flag must be set: without it the donor
// takes a backup lock, and DDL would wait for as long as the joiner likes. A joiner asks for the lock only where
// clone_block_ddl is on, and it is off.
//
//	+-------------+---------------------+----
//	| version u32 | timeout, flag  u32  | …      version: 0x0100 to 0x0103 so far; flag: bit 31, no backup lock
//	+-------------+---------------------+----
func begins(copy []byte) bool {
	return len(copy) >= 8 && copy[0] < '\t' && copy[1] == 1 && copy[2] == 0 && copy[3] == 0 && copy[7]&0x80 != 0
}

// copying is a connection to mysqld that passes on only commands that copy data.
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

// handshake runs do on a connection. The caller reads the connection directly afterwards, so
// bytes behind the login are an error.
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

// doorBufferBytes is the read buffer of a login, which is shorter.
const doorBufferBytes = 4 << 10
