package mysqlwire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/testkit/hostile"
)

// secrets are facts that a client without a login must not see: all that a feed knows of its server, except
// the version, which is in the greeting.
var secrets = []string{feedUUID, "quorate.0", "11000000", "1600000001", "4000000002"}

// fuzzedLog is a log that ends, as both kinds of source.
type fuzzedLog struct{ *readerLog }

func newFuzzedLog() fuzzedLog {
	w := binlogtest.New("q.000001")
	return fuzzedLog{newReaderLog(Piece{Index: 2, FormatDescription: w.FormatDescription(1)}, Piece{Index: 2, Events: binlogtest.Join(w.Rows(100)...)},
		Piece{Index: 3, FormatDescription: w.FormatDescription(1)}, Piece{Index: 3, Events: binlogtest.Join(slices.Concat(w.Statement("CREATE TABLE t (i INT)"), w.Rows(10))...)})}
}

// Start implements Source.
func (l fuzzedLog) Start(ctx context.Context, requested *gtid.Set) (Cursor, error) {
	return l.StartReader(ctx, ReaderRequest{Exclude: requested, Once: true})
}

// StartReader implements ReaderSource: it waits for nothing.
func (l fuzzedLog) StartReader(ctx context.Context, r ReaderRequest) (Cursor, error) {
	r.Once = true
	return l.readerLog.StartReader(ctx, r)
}

// fuzzedFeed returns a feed that does not listen: for readers, with this certificate, or for the node's own mysqld.
func fuzzedFeed(t *testing.T, readers bool, certificate *tls.Certificate) (*Feed, fuzzedLog) {
	log := newFuzzedLog()
	cfg := readersConfig(log, cdcAccounts()...)
	cfg.Readers.Certificate = func() *tls.Certificate { return certificate }
	if !readers {
		cfg.Readers, cfg.Source, cfg.User, cfg.Password, cfg.ServerID = nil, log, "feed", "feed's secret", 4000000002
		cfg.WrapPayloads = true
	}
	f, err := NewFeed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, log
}

// serving is one connection of a feed, from this host or another; err is how it ended.
func (f *Feed) serving(here bool, err *error) func(conn *net.UnixConn) {
	return func(conn *net.UnixConn) {
		from := net.Conn(hostile.Remote{UnixConn: conn})
		if here {
			from = conn
		}
		s := newFeedSession(f, from, 7)
		defer f.dismiss(s.conn)
		defer s.stay.Leave()
		*err = s.run(context.Background())
	}
}

// atRest fails if something of a connection is left.
func (f *Feed) atRest(t *testing.T, log fuzzedLog) {
	t.Helper()
	if s := f.Stats(); s.Connections+s.Dumps+f.strangers.Stats().Inside+log.open != 0 {
		t.Errorf("left: %+v, %d cursors, %d strangers", s, log.open, f.strangers.Stats().Inside)
	}
}

// payloadsOf cuts the bytes that the client got into payloads, and fails if they end within
// one.
func payloadsOf(t *testing.T, told []byte) (all [][]byte) {
	t.Helper()
	for len(told) > 0 {
		if len(told) < packetHeaderBytes || len(told) < packetHeaderBytes+payloadBytes(told) {
			t.Fatalf("told part of a packet: %q", told)
		}
		n := packetHeaderBytes + payloadBytes(told)
		all, told = append(all, told[packetHeaderBytes:n]), told[n:]
	}
	return all
}

// logins are what clients say first.
func logins() [][]byte {
	other := loginResponse("cdc", bytes.Repeat([]byte{1}, 32))
	native := append(bytes.TrimSuffix(other, []byte(authPlugin+"\x00")), "mysql_native_password\x00"...)
	asks := bytes.Clone(other)
	binary.LittleEndian.PutUint32(asks, capsOurs|capSSL)
	withDB := bytes.Clone(other)
	binary.LittleEndian.PutUint32(withDB, capsOurs|capConnectWithDB)
	return [][]byte{
		frame(other, 1), frame(loginResponse("feed", nil), 1), frame(loginResponse("", nil), 1), frame(asks, 1), frame(withDB, 1),
		append(frame(asks[:sslRequestBytes], 1), 0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3), append(frame(asks[:sslRequestBytes], 1), frame(other, 2)...),
		append(frame(native, 1), frame(bytes.Repeat([]byte{1}, 32), 3)...), append(frame(other, 1), frame([]byte{comPing}, 0)...),
		[]byte("GET / HTTP/1.1\r\n\r\n"), {0xff, 0xff, 0xff, 1}, nil,
	}
}

// secureClient asks for TLS, and returns the TLS connection and the challenge of the greeting.
func secureClient(conn net.Conn) (*wire, []byte, error) {
	w := &wire{conn: conn, in: newPacketReader(conn, commandBufferBytes, loginBytesMax)}
	payload, err := w.read()
	if err != nil {
		return nil, nil, err
	}
	nonce, err := parseGreeting(payload)
	if err != nil {
		return nil, nil, err
	}
	asks := loginResponse("", nil)[:sslRequestBytes]
	binary.LittleEndian.PutUint32(asks, capsOurs|capSSL)
	if err := w.write(asks); err != nil {
		return nil, nil, err
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	w.conn, w.in = secure, newPacketReader(secure, commandBufferBytes, loginBytesMax)
	return w, nonce, secure.Handshake()
}

// exchange is hostile.Exchange within TLS.
func (w *wire) exchange(sent []byte) (told []byte) {
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = w.conn.Write(sent)
		_ = w.conn.(*tls.Conn).CloseWrite()
	}()
	told, _ = io.ReadAll(w.in.r)
	_ = w.conn.(*tls.Conn).NetConn().Close()
	<-wrote
	return told
}

// FuzzLogin gives a feed's port, with and without TLS, or a door, anything from a client that knows no password.
// The client gets a greeting, at most one request to use another authentication, and at most one error. It takes
// no place, and mysqld is not contacted for it.
func FuzzLogin(f *testing.F) {
	certificate, _ := newCertificate(f)
	for _, sent := range logins() {
		for how := range byte(5) {
			f.Add(how, sent)
		}
	}
	f.Fuzz(func(t *testing.T, how byte, sent []byte) {
		how %= 5 // our own mysqld's, a reader's of here and of elsewhere, also within TLS, a door
		feed, log := fuzzedFeed(t, how > 0, certificate)
		var err error
		serve := feed.serving(how < 2, &err)
		if how == 4 {
			serve = func(conn *net.UnixConn) {
				_, err = Door{Socket: "/nonexistent", User: "feed", Version: "9.7.4", ClientPassword: "of one use"}.Open(context.Background(), conn)
				_ = conn.Close()
			}
		}
		var told []byte
		hostile.Talk(t, 8<<20+8*uint64(len(sent)), serve, func(conn *net.UnixConn) {
			if how != 3 {
				told = hostile.Exchange(conn, sent)
				return
			}
			defer func() { _ = conn.Close() }()
			w, _, err := secureClient(conn)
			if err != nil {
				t.Errorf("begin TLS: %v", err)
				return
			}
			told = w.exchange(sent)
		})
		if err == nil || strings.Contains(err.Error(), "connect to mysqld") {
			t.Fatalf("logged in: %v", err)
		}
		for _, secret := range secrets {
			if bytes.Contains(told, []byte(secret)) && !bytes.Contains(sent, []byte(secret)) {
				t.Errorf("told %q", told)
			}
		}
		if feed.Stats().ConnectionsTotal != 0 {
			t.Error("it took a place")
		}
		feed.atRest(t, log)
		if !strings.Contains(err.Error(), "begin TLS") {
			refused(t, told, how != 3)
		}
		if denied := []byte("\xff\x15\x04#28000Access denied"); how == 2 && bytes.Contains(told, denied) && !bytes.Contains(sent, denied) {
			t.Error("a reader of another host was asked who it is, without TLS")
		}
	})
}

// refused fails unless a client got only a greeting and a refusal of its login.
func refused(t *testing.T, told []byte, greeted bool) {
	t.Helper()
	may := [][]byte{{10}, {headerEOF, headerErr}, {headerErr}}
	if !greeted {
		may = may[1:]
	}
	all := payloadsOf(t, told)
	if greeted && len(all) == 0 || len(all) > len(may) {
		t.Fatalf("told %q", all)
	}
	for i, payload := range all {
		if len(payload) == 0 || !bytes.Contains(may[i], payload[:1]) {
			t.Errorf("packet %d: %q", i, payload)
		}
	}
}

// commands are commands of clients that have logged in.
func commands() (all [][]byte) {
	for _, text := range []string{
		"SELECT UNIX_TIMESTAMP()", "SELECT @@GLOBAL.SERVER_UUID", "SET @master_heartbeat_period = 1, @source_heartbeat_period = -1",
		"SET @slave_uuid = 'x', @quorate_decompress := 1", "SET NAMES utf8mb4", "SHOW MASTER STATUS", "show binary logs",
		"SHOW GLOBAL VARIABLES LIKE 'gtid\\_%'", "SHOW VARIABLES WHERE variable_name = 'server_id'", "select @@gtid_executed,1,@@log_bin",
		"SELECT @@version_comment LIMIT 1", "COMMIT", "INSERT INTO t VALUES (1)", "",
	} {
		all = append(all, frame(append([]byte{comQuery}, text...), 0))
	}
	some, err := gtid.ParseSet("11000000-0000-0000-0000-000000000001:1-5")
	if err != nil {
		panic(err)
	}
	for _, file := range []string{"", fileName(false, 2), fileName(true, 3), "x"} {
		for _, flags := range []uint16{0, flagNonBlock, flagHeartbeatV2} {
			byFile := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint32([]byte{comBinlogDump}, 4), flags)
			all = append(all, frame(dumpRequest{flags: flags, serverID: 8, file: file, offset: 4, exclude: some}.payload(), 0),
				frame(append(binary.LittleEndian.AppendUint32(byFile, 8), file...), 0))
		}
	}
	for _, command := range []byte{comQuit, comPing, comInitDB, comSetOption, comResetConnection, 0x99} {
		all = append(all, frame([]byte{command}, 0))
	}
	return append(all, frame(registerRequest(8), 0), slices.Concat(all...), frame(nil, 0), []byte{0xff, 0xff, 0xff, 0})
}

// FuzzCommands gives a feed anything from a client that has logged in. The client gets whole packets, no
// more than its commands allow, and nothing of the session stays behind.
func FuzzCommands(f *testing.F) {
	certificate, _ := newCertificate(f)
	for _, sent := range commands() {
		for how := range byte(3) {
			f.Add(how, sent)
		}
	}
	f.Fuzz(func(t *testing.T, how byte, sent []byte) {
		how %= 3 // our own mysqld, a reader of here, one of elsewhere
		feed, log := fuzzedFeed(t, how > 0, certificate)
		var err, loginErr error
		var told []byte
		// A header may announce a command that does not come.
		hostile.Talk(t, 2*commandBytesMax+16<<20+256*uint64(len(sent)), feed.serving(how < 2, &err), func(conn *net.UnixConn) {
			defer func() { _ = conn.Close() }()
			if how < 2 {
				user, password := []string{"feed", "cdc"}[how], []string{"feed's secret", "cdc's secret"}[how]
				loginErr = login(&wire{conn: conn, in: newPacketReader(conn, commandBufferBytes, loginBytesMax)}, user, password)
				told = hostile.Exchange(conn, sent)
				return
			}
			w, nonce, err := secureClient(conn)
			if err == nil {
				err = w.write(loginResponse("old", scramble("cdc's secret", nonce)))
			}
			if err == nil {
				_, err = w.read()
			}
			if err == nil {
				err = w.expectOK()
			}
			if loginErr = err; err == nil {
				told = w.exchange(sent)
			}
		})
		if loginErr != nil {
			t.Fatal(loginErr)
		}
		for _, payload := range payloadsOf(t, told) {
			if len(payload) == 0 {
				t.Error("told an empty packet")
			}
		}
		feed.atRest(t, log)
	})
}
