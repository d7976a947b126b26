package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/sys/strangers"
)

// commandBufferBytes is the read buffer of a feed session: commands are small.
const commandBufferBytes = 4 << 10

const (
	// commandBytesMax bounds a dump request: it holds the replica's GTID set, at 16 bytes per interval and 24 and
	// more per source.
	commandBytesMax = packetBytesMax - 1
	// statementBytesMax bounds any other command.
	statementBytesMax = 1 << 20
)

// errTooLong is the error for a statement that is longer than a reader needs.
func errTooLong() *ServerError {
	return &ServerError{Code: 1153, State: "08S01", Message: fmt.Sprintf(
		"quorate takes statements of at most %d bytes and %d words", statementBytesMax, wordsMax)}
}

// feedSession is one client connection of a feed.
type feedSession struct {
	feed *Feed
	// conn is the accepted connection: it is closed, and has the deadlines. wire reads and
	// writes, through TLS on conn once the client has asked for TLS.
	conn net.Conn
	wire *wire
	id   uint32
	// stay is its place among the connections that have not logged in. admitted says that it counts
	// as one of the feed's connections.
	stay     *strangers.Stay
	admitted bool
	// Set by the client's SET statements.
	heartbeatPeriod time.Duration
	replicaUUID     string
	// bareRotate says that the first event of a dump is sent without a checksum: a client that asked for no
	// checksums expects none before the first FORMAT_DESCRIPTION, and would take it for a part of the file's
	// name (mysqlbinlog).
	bareRotate bool
	// reader is the account that has logged in, in a feed for readers. plain says that it gets
	// compressed transactions uncompressed.
	reader *readerAccount
	plain  bool
	sql    sqlSession
}

// newFeedSession returns a session that takes one of the places for connections that have not
// logged in.
func newFeedSession(f *Feed, conn net.Conn, id uint32) *feedSession {
	return &feedSession{
		feed: f, conn: conn, id: id,
		stay: f.strangers.Enter(conn.RemoteAddr(), func() { _ = conn.Close() }),
		wire: &wire{conn: conn, in: newPacketReader(conn, commandBufferBytes, loginBytesMax)},
	}
}

// run serves the session to its end. It returns nil if the client left.
func (s *feedSession) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	if err := s.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if err := s.greet(ctx); err != nil {
		if errors.Is(err, errAccessDenied) || errors.Is(err, errNoTLS) {
			s.feed.stats.refused.Add(1)
		}
		return fmt.Errorf("log in: %w", err)
	}
	if s.reader != nil {
		s.record(&s.feed.begun, slog.LevelInfo, "a reader has logged in", "tls", s.wire.conn != s.conn)
		defer s.leaveReader()
	}
	idle := commandTimeout
	if s.reader != nil && s.reader.SQL {
		idle = sqlIdleTimeout
	}
	for {
		if err := s.conn.SetDeadline(time.Now().Add(idle)); err != nil {
			return fmt.Errorf("set deadline: %w", err)
		}
		command, err := s.command()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if e, ok := errors.AsType[*ServerError](err); ok {
			if err = s.wire.write(e.payload()); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("read command: %w", err)
		}
		if done, err := s.serve(ctx, command); done || err != nil {
			return err
		}
	}
}

// command reads a command. Of a text that is too long it keeps nothing: the error is errTooLong, and the session can go
// on.
func (s *feedSession) command() ([]byte, error) {
	first, err := s.wire.in.peek(1)
	if err != nil {
		return nil, err
	}
	s.wire.in.payloadBytesMax = statementBytesMax
	isText := false
	if len(first) > 0 {
		switch first[0] {
		case comBinlogDump, comBinlogDumpGTID:
			s.wire.in.payloadBytesMax = commandBytesMax
		case comQuery, comStmtPrepare:
			isText = true
		}
	}
	command, err := s.wire.read()
	if !isText || !errors.Is(err, ErrPacketTooLarge) {
		return command, err
	}
	for last := false; !last; {
		if _, last, err = s.wire.in.part(); err != nil {
			return nil, err
		}
	}
	s.wire.sequence = s.wire.in.sequence + 1
	return nil, errTooLong()
}

func (s *feedSession) greet(ctx context.Context) error {
	cfg := &s.feed.cfg
	if cfg.Readers != nil {
		return s.greetReader(ctx)
	}
	return welcome{version: cfg.ServerVersion(), connectionID: s.id, verify: isAccount(cfg.User, cfg.Password), admit: s.admit}.greet(s.wire)
}

// admit counts a client whose login was verified as one of the feed's connections. It returns
// false if there are too many.
func (s *feedSession) admit() bool {
	s.admitted = s.stay.Leave() && s.feed.admit(s.conn)
	return s.admitted
}

// record writes a log line about a session that has logged in. Lines about readers are bounded in number, and name
// the client's address and account: mysqld sees a reader with SQL as a client of this host, and the other readers are
// recorded nowhere else.
func (s *feedSession) record(bound *strangers.Burst, level slog.Level, text string, args ...any) {
	args = append([]any{"connection", s.id}, args...)
	if s.reader != nil {
		ok, left := bound.Take(time.Now())
		if !ok {
			return
		}
		args = append([]any{"client", s.conn.RemoteAddr().String(), "reader", s.reader.User}, args...)
		if left > 0 {
			args = append(args, "sessions_without_a_line", left)
		}
	}
	s.feed.cfg.Logger.Log(context.Background(), level, text, args...)
}

// leaveReader ends a reader's session in mysqld, if it has one, and logs the end.
func (s *feedSession) leaveReader() {
	args := []any{"seconds", time.Since(s.sql.began).Round(time.Millisecond).Seconds()}
	if s.reader.SQL {
		s.endSQL()
		args = append(args, "statements", s.sql.statements)
	}
	s.record(&s.feed.left, slog.LevelInfo, "a reader's session ended", args...)
}

// serve answers one command. done means that the session is over.
func (s *feedSession) serve(ctx context.Context, command []byte) (done bool, err error) {
	if len(command) == 0 {
		return true, fmt.Errorf("%w: empty command", ErrMalformed)
	}
	if s.reader != nil {
		if done, answered, err := s.serveReader(ctx, command); answered {
			return done, err
		}
	}
	switch command[0] {
	case comQuit:
		return true, nil
	case comPing, comRegisterSlave:
		return false, s.wire.write(okPayload())
	case comQuery:
		return false, s.wire.write(s.query(string(command[1:]))...)
	case comBinlogDumpGTID:
		request, err := parseDumpRequest(command)
		if err != nil {
			return true, err
		}
		return true, s.dump(ctx, request)
	case comBinlogDump:
		// Fatal for the client, because it can never work here.
		e := &ServerError{Code: 1236, State: "HY000", Message: "quorate serves only by GTID: set SOURCE_AUTO_POSITION = 1"}
		return true, s.wire.write(e.payload())
	}
	e := &ServerError{Code: 1047, State: "08S01", Message: fmt.Sprintf("Unknown command %d", command[0])}
	return false, s.wire.write(e.payload())
}

// query answers the statements of a replica's I/O thread
// (get_source_version_and_clock in sql/rpl_replica.cc, facts Q6) and the few
// that client libraries send by themselves: SELECT of one known expression, and
// SET of user variables, of which two matter. Anything else is an error.
func (s *feedSession) query(text string) [][]byte {
	text = strings.TrimRight(strings.TrimSpace(text), "; \t\r\n")
	verb, rest, _ := strings.Cut(text, " ")
	switch strings.ToLower(verb) {
	case "select":
		expression := strings.TrimSpace(rest)
		if value, ok := s.value(expression); ok {
			return oneRow(expression, value)
		}
		e := &ServerError{Code: 1193, State: "HY000", Message: "Unknown system variable in '" + expression + "'"}
		return [][]byte{e.payload()}
	case "set":
		if err := s.set(rest); err != nil {
			e := &ServerError{Code: 1231, State: "42000", Message: err.Error()}
			return [][]byte{e.payload()}
		}
		return [][]byte{okPayload()}
	}
	e := &ServerError{Code: 1235, State: "42000", Message: "quorate's feed answers only what a replica asks"}
	return [][]byte{e.payload()}
}

// value evaluates one expression that a replica may select.
func (s *feedSession) value(expression string) (string, bool) {
	name := strings.TrimSuffix(strings.ToLower(expression), " limit 1")
	for _, scope := range []string{"@@global.", "@@session.", "@@"} {
		if rest, ok := strings.CutPrefix(name, scope); ok {
			name = "@@" + rest
			break
		}
	}
	cfg := &s.feed.cfg
	switch name {
	case "unix_timestamp()":
		return strconv.FormatInt(time.Now().Unix(), 10), true
	case "@@server_id":
		return strconv.FormatUint(uint64(cfg.ServerID), 10), true
	case "@@server_uuid":
		return cfg.ServerUUID(), true
	case "@@gtid_mode":
		return "ON", true
	case "@source_binlog_checksum", "@master_binlog_checksum", "@@binlog_checksum":
		// CRC32 whatever the client has set: every event is sent with the checksum that its
		// FORMAT_DESCRIPTION announces.
		return "CRC32", true
	case "@@version", "version()":
		return cfg.ServerVersion(), true
	case "@@version_comment":
		return "quorate", true
	}
	return "", false
}

// set takes "name = value, name = value, …". Names that are not used here are accepted: a real
// source keeps user variables of any name.
func (s *feedSession) set(assignments string) error {
	for assignment := range strings.SplitSeq(assignments, ",") {
		name, value, ok := strings.Cut(assignment, "=")
		if !ok {
			continue // SET NAMES
		}
		value = strings.Trim(strings.TrimSpace(value), "'\"")
		switch strings.ToLower(strings.TrimRight(strings.TrimSpace(name), ": ")) {
		case "@master_heartbeat_period", "@source_heartbeat_period":
			ns, err := strconv.ParseInt(value, 10, 64)
			if err != nil || ns < 0 {
				return fmt.Errorf("heartbeat period of %q ns", value)
			}
			s.heartbeatPeriod = time.Duration(ns)
		case "@master_binlog_checksum", "@source_binlog_checksum":
			s.bareRotate = strings.EqualFold(value, "none")
		case "@slave_uuid", "@replica_uuid":
			s.replicaUUID = strings.ToLower(value)
		}
	}
	return nil
}

// oneRow is a text result set of one column and one row.
func oneRow(column, value string) [][]byte {
	definition := appendString8(nil, "def")
	for _, name := range []string{"", "", "", column, ""} { // schema, tables, column, original column
		definition = appendString8(definition, name)
	}
	const (
		fixedBytes       = 12
		columnBytes      = 0xff
		typeVarString    = 0xfd
		flagsAndDecimals = 0
	)
	definition = append(definition, fixedBytes, charsetUTF8MB4, 0, columnBytes, 0, 0, 0, typeVarString,
		flagsAndDecimals, flagsAndDecimals, flagsAndDecimals, 0, 0)
	return [][]byte{{1}, definition, eofPayload(), appendString8(nil, value), eofPayload()}
}

// appendString8 appends a length-encoded string and cuts it at 250 bytes. Names and values here
// are short.
func appendString8(dst []byte, s string) []byte {
	s = s[:min(len(s), 250)]
	return append(append(dst, byte(len(s))), s...)
}
