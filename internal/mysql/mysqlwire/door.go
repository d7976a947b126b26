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
// connections are then where commands begin, and what comes is to be passed on as it is.
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
	return server, nil
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
