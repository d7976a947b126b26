package mysqlwire

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStatementThatGoesOn: a reader has left before its answer, and mysqld takes no session that would end its statement.
// A mysqld that stopped answering behind the login once kept the reader's place for ever, and nothing was said. Then it was said in
// two lines.
func TestStatementThatGoesOn(t *testing.T) {
	for want, c := range map[string]struct {
		serve func(*wire) error
		took  time.Duration
	}{
		"Too many connections": {func(w *wire) error {
			return w.write((&ServerError{Code: 1040, State: "08004", Message: "Too many connections"}).payload())
		}, 0},
		"i/o timeout": {func(w *wire) error { return greet(w, "9.7.4", 7, "cdc", "secret") }, handshakeTimeout},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := readersConfig(newReaderLog(), Reader{User: "cdc", PasswordHash: HashPassword("secret"), SQL: true, Password: "secret"})
				ended := make(chan error)
				cfg.Readers.SQL = func(context.Context) (net.Conn, error) {
					client, server := pipeWires(t)
					go func() {
						err := c.serve(server)
						for err == nil {
							_, err = server.read()
						}
						ended <- err
					}()
					return client.conn, nil
				}
				feed, err := NewFeed(cfg)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				reader, here := pipeWires(t)
				agent, mysqld := pipeWires(t)
				_ = reader.conn.Close()
				session := &feedSession{feed: feed, reader: feed.accounts[0], conn: here.conn, wire: here}
				err = session.relay(t.Context(), &sqlServer{id: "7", conn: agent.conn}, func(*relay) error {
					_, err := mysqld.read() // until the agent closes
					return err
				})
				said := fmt.Sprint(err)
				if took := time.Since(began); !strings.HasPrefix(said, "the reader has left before its answer: EOF; its statement goes on in mysqld: ") ||
					!strings.Contains(said, want) || took != c.took {
					t.Errorf("after %v: %s", took, said)
				}
				<-ended
			})
		})
	}
}
