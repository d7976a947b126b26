package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// The commands of prepared statements.
const (
	comStmtPrepare  = 0x16
	comStmtExecute  = 0x17
	comStmtSendLong = 0x18
	comStmtClose    = 0x19
	comStmtReset    = 0x1a
)

const (
	// sqlIdleTimeout is how long a reader with SQL may be silent: mysqld's default of wait_timeout. Tools keep a
	// connection until a table changes.
	sqlIdleTimeout = 8 * time.Hour
	// sqlCatchUp is how long SHOW BINARY LOG STATUS waits until the local mysqld has applied everything that is
	// committed.
	sqlCatchUp = 10 * time.Second
	// placeTimeout bounds the search for the position in the log that mysqld has reached.
	placeTimeout = time.Minute
	// codeAway is ER_SERVER_SHUTDOWN.
	codeAway = 1053
	// codeNoSession is ER_NO_SUCH_THREAD: the session has ended by itself.
	codeNoSession = 1094
	// cursorFlagsAt is the offset of the byte by which COM_STMT_EXECUTE asks for a cursor: behind the
	// command and the statement's number u32.
	cursorFlagsAt = 5
)

// errSQLAway is the error for a reader with SQL when the local mysqld cannot be asked. On it,
// drivers connect again.
func errSQLAway(why error) *ServerError {
	return &ServerError{Code: codeAway, State: "08S01", Message: cut(fmt.Sprintf("this node's mysqld cannot be asked: %v", why), 400)}
}

// sqlSession is the state of a reader's session with SQL.
type sqlSession struct {
	began time.Time
	// database and charset are what the reader asked for at its login.
	database string
	charset  byte
	// server is its session in mysqld: opened by the first statement, closed at a dump, and
	// opened again for the questions of the dump.
	server     *sqlServer
	statements int
	// awayUntil: mysqld could not be asked, and a dump does not ask it again before this time.
	awayUntil time.Time
}

// sqlServer returns the reader's session in mysqld.
func (s *feedSession) sqlServer(ctx context.Context) (*sqlServer, error) {
	if s.sql.server != nil {
		return s.sql.server, nil
	}
	if s.feed.cfg.Readers.SQL == nil {
		return nil, errSQLAway(errors.New("there is none"))
	}
	q, err := dialSQL(ctx, s.feed.cfg.Readers.SQL, s.reader.User, s.reader.Password, s.sql.charset)
	if e, ok := errors.AsType[*ServerError](err); ok && e.Code == 1045 {
		return nil, &ServerError{Code: 1045, State: "28000", Message: fmt.Sprintf("mysqld does not know the reader %s with its password: "+
			"CREATE USER %s@localhost IDENTIFIED BY '…' on the primary", s.reader.User, s.reader.User)}
	}
	if err == nil && s.sql.database != "" {
		if err = q.do(append([]byte{comInitDB}, s.sql.database...)); err != nil {
			q.close()
		}
	}
	if e, ok := errors.AsType[*ServerError](err); ok {
		return nil, e
	}
	if err != nil {
		return nil, errSQLAway(err)
	}
	s.sql.server = q
	return q, nil
}

// endSQL ends the session in mysqld.
func (s *feedSession) endSQL() {
	if s.sql.server != nil {
		s.sql.server.close()
		s.sql.server = nil
	}
}

// serveSQL answers the commands of a reader with SQL that need mysqld.
func (s *feedSession) serveSQL(ctx context.Context, command []byte) (done, answered bool, err error) {
	switch command[0] {
	case comBinlogDump, comBinlogDumpGTID:
		s.endSQL()
		return false, false, nil
	case comQuery:
		s.sql.statements++
		err = s.sqlQuery(ctx, string(command[1:]))
	case comStmtPrepare:
		s.sql.statements++
		err = s.prepare(ctx, string(command[1:]))
	case comStmtExecute:
		if len(command) > cursorFlagsAt {
			command[cursorFlagsAt] = 0 // no cursor: all rows come at once
		}
		err = s.forward(ctx, command, (*relay).result)
	case comStmtSendLong, comStmtClose:
		err = s.forward(ctx, command, nil)
	case comInitDB, comPing, comStmtReset:
		err = s.forward(ctx, command, (*relay).one)
	case comResetConnection:
		if err = s.forward(ctx, command, (*relay).one); err == nil && s.sql.server != nil {
			s.sql.server.locked = false
			err = s.sql.server.do(append([]byte{comQuery}, sqlSettings...))
		}
	case comSetOption: // it would allow several statements in one text, and only the first would be judged
		e := &ServerError{Code: 1047, State: "08S01", Message: "Unknown command"}
		err = s.wire.write(e.payload())
	default:
		return false, false, nil
	}
	return err != nil, true, err
}

// forward sends a command to mysqld, and passes its answer on.
func (s *feedSession) forward(ctx context.Context, command []byte, answer func(*relay) error) error {
	q, err := s.sqlServer(ctx)
	if err != nil {
		return s.refuse(err, answer != nil)
	}
	if err := q.send(command); err != nil {
		return err
	}
	if answer == nil {
		return nil
	}
	return s.relay(ctx, q, answer)
}

// refuse tells a reader why its command failed. The session goes on, unless mysqld cannot be asked.
// answered says that the command has an answer in the protocol.
func (s *feedSession) refuse(err error, answered bool) error {
	e, ok := errors.AsType[*ServerError](err)
	if !ok {
		return err
	}
	if answered {
		err = s.wire.write(e.payload())
	} else {
		err = nil
	}
	if e.Code == codeAway {
		return errors.Join(e, err)
	}
	return err
}

// relay passes an answer of mysqld on. If the client leaves meanwhile, its session ends, in mysqld, too: the answer may take
// as long as a lock lasts, and the session has one of readers_max places.
func (s *feedSession) relay(ctx context.Context, q *sqlServer, answer func(*relay) error) error {
	_ = s.conn.SetReadDeadline(time.Time{})
	left := make(chan error, 1)
	go func() {
		var err error
		in := s.wire.in.r
		for err == nil && in.Buffered() < in.Size() { // what comes is kept: the next commands
			_, err = in.Peek(in.Buffered() + 1)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = q.conn.Close()
		}
		left <- err
	}()
	err := answer(q.relayTo(slowWriter{s.conn, s.wire.conn}))
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	if gone := <-left; err != nil && gone != nil && !errors.Is(gone, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the reader has left before its answer: %w", gone)
		if e := s.killSQL(ctx, q); e != nil {
			err = fmt.Errorf("%w; %w", err, e) // one line of the log
		}
	}
	return err
}

// killSQL ends a session whose connection is closed: mysqld does not look at that while a statement waits.
func (s *feedSession) killSQL(ctx context.Context, q *sqlServer) error {
	k, err := dialSQL(ctx, s.feed.cfg.Readers.SQL, s.reader.User, s.reader.Password, s.sql.charset)
	if err == nil {
		defer k.close()
		if err = k.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err == nil {
			err = k.do(append([]byte{comQuery}, "KILL "+q.id...))
		}
	}
	if e, ok := errors.AsType[*ServerError](err); err == nil || ok && e.Code == codeNoSession {
		return nil
	}
	return fmt.Errorf("its statement goes on in mysqld: %w", err)
}

// slowWriter writes to a client that may be slow: it renews the write deadline at each write.
type slowWriter struct{ conn, to net.Conn }

func (w slowWriter) Write(b []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(sqlWriteTimeout)); err != nil {
		return 0, err
	}
	return w.to.Write(b)
}

// sqlQuery answers a statement, itself or by mysqld.
func (s *feedSession) sqlQuery(ctx context.Context, text string) error {
	statement := parseStatement(text)
	kind, err := statement.classify()
	if err != nil {
		return s.refuse(err, true)
	}
	switch kind {
	case askNothing:
		return s.wire.write(okPayload())
	case askReplicas:
		return s.wire.write(replicasTable().payloads()...)
	case askStatus, askFiles:
		result, err := s.sqlPosition(ctx, kind)
		if err != nil {
			return s.refuse(err, true)
		}
		return s.wire.write(result.payloads()...)
	}
	if statement.is("set") {
		assignments := strings.TrimSpace(statement.text[statement.words[0].end:])
		s.setPlain(strings.ToLower(strings.Join(strings.Fields(assignments), "")))
		if err := s.set(assignments); err != nil {
			return s.refuse(&ServerError{Code: 1231, State: "42000", Message: err.Error()}, true)
		}
	}
	if t, ok := s.feedValues(statement); ok {
		return s.wire.write(t.payloads()...)
	}
	text, err = statement.with(s.literals())
	if err != nil {
		return s.refuse(err, true)
	}
	q, err := s.sqlServer(ctx)
	if err != nil {
		return s.refuse(err, true)
	}
	if err := q.send(append([]byte{comQuery}, text...)); err != nil {
		return err
	}
	q.locked = (q.locked || statement.locks()) && !statement.unlocks()
	return s.relay(ctx, q, func(r *relay) error {
		switch kind {
		case askVariables:
			r.edit = editVariables(s.feedVariables())
		case askGrants:
			r.more = [][]byte{appendString(nil, fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `%s`@`%%`", s.reader.User))}
		}
		return r.result()
	})
}

// prepare prepares a statement in mysqld. Statements that the feed answers itself cannot be prepared: drivers
// then send them as text.
func (s *feedSession) prepare(ctx context.Context, text string) error {
	statement := parseStatement(text)
	kind, err := statement.classify()
	if err == nil && (kind != askMysqld || statement.is("set") || statement.is("flush") || statement.is("lock") || statement.is("unlock")) {
		err = &ServerError{Code: 1295, State: "HY000", Message: "This command is not supported in the prepared statement protocol yet"}
	}
	if err == nil {
		text, err = statement.with(s.literals())
	}
	if err != nil {
		return s.refuse(err, true)
	}
	return s.forward(ctx, append([]byte{comStmtPrepare}, text...), (*relay).prepared)
}

// feedVariables has the variables whose values differ from mysqld's: a reader with SQL sees a server whose binlog is
// the log.
func (s *feedSession) feedVariables() map[string]string {
	_, purged := s.feed.cfg.Readers.Source.GTIDs()
	return map[string]string{
		"binlog_checksum": "CRC32", "gtid_purged": purged.String(), "log_bin": "ON", "log_replica_updates": "ON", "log_slave_updates": "ON",
		"server_id": strconv.FormatUint(uint64(s.feed.cfg.ServerID), 10), "server_uuid": s.feed.cfg.ServerUUID(),
	}
}

// literals are feedVariables as SQL literals.
func (s *feedSession) literals() map[string]string {
	values := s.feedVariables()
	for name, value := range values {
		switch {
		case value == "ON":
			values[name] = "1"
		case name != "server_id":
			values[name] = "'" + value + "'"
		}
	}
	return values
}

// feedValues answers a SELECT of nothing but feedVariables. It needs no mysqld: a replica asks only
// such things.
func (s *feedSession) feedValues(statement statement) (table, bool) {
	values := s.literals()
	t := table{rows: [][]string{nil}}
	if !statement.is("select") || len(statement.words) > 2*columnsMax || len(statement.words)%2 != 0 {
		return t, false
	}
	for i, w := range statement.words[1:] {
		if i%2 == 1 {
			if w.text != "," {
				return t, false
			}
			continue
		}
		name, _ := variableName(w.text)
		value, ok := values[name]
		if value = strings.Trim(value, "'"); !ok && (w.text == "@source_binlog_checksum" || w.text == "@master_binlog_checksum") {
			value, ok = s.value(w.text)
		}
		if !ok {
			return t, false
		}
		t.columns, t.rows[0] = append(t.columns, statement.text[w.start:w.end]), append(t.rows[0], value)
	}
	return t, true
}

// sqlPosition answers SHOW BINARY LOG STATUS and SHOW BINARY LOGS. A tool that takes a snapshot stores this position
// with it. So the answer is the position that the local mysqld has reached, which is what the tool's SELECTs see, and
// not the end of the log. While the reader holds a lock of tables, that does not change. Without a lock, sqlPosition
// first waits until mysqld has everything that is committed: a tool that has read further on another node must not
// find this server behind its own position.
func (s *feedSession) sqlPosition(ctx context.Context, kind statementKind) (table, error) {
	q, err := s.sqlServer(ctx)
	if err != nil {
		return table{}, err
	}
	if !q.locked {
		if barrier := s.feed.cfg.Readers.Barrier; barrier != nil {
			barrier(ctx)
		}
	}
	if kind == askFiles {
		return s.showFiles()
	}
	if !q.locked {
		committed, _ := s.feed.cfg.Readers.Source.GTIDs()
		if _, err := q.value(fmt.Sprintf("SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %d)", committed, int(sqlCatchUp.Seconds()))); err != nil {
			return table{}, err
		}
	}
	text, err := q.value("SELECT @@GLOBAL.gtid_executed")
	if err != nil {
		return table{}, err
	}
	has, err := gtid.ParseSet(text)
	if err != nil {
		return table{}, fmt.Errorf("read mysqld's gtid_executed: %w", err)
	}
	file, offset, err := s.place(ctx, has)
	return statusTable(file, offset, has), err
}

// place is the position behind the last transaction of has, and in front of the first transaction that is not in it.
// mysqld may show a transaction before this node knows that it is committed: place waits until the node knows.
func (s *feedSession) place(ctx context.Context, has *gtid.Set) (file string, offset uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	source := s.feed.cfg.Readers.Source
	files, err := source.Files()
	if err != nil {
		return "", 0, err
	}
	i := len(files) - 1
	for i >= 0 && !has.ContainsSet(files[i].Before) {
		i--
	}
	if i < 0 {
		return "", 0, ErrPurgedGTIDs(has, files[0].Before)
	}
	rest := has.Clone()
	rest.Subtract(files[i].Before)
	w := s.newReaderWriter(nil)
	w.counting, w.rest = true, rest
	w.file, w.offset = fileName(s.plain, files[i].Index), binlogMagicBytes
	err = s.count(ctx, w, ReaderRequest{From: files[i].Index})
	if ctx.Err() != nil && context.Cause(ctx) == context.DeadlineExceeded {
		err = fatal("This node's server has transactions that the log does not have yet: %s", cut(rest.String(), 200))
	}
	if errors.Is(err, errPlace) {
		err = nil
	}
	return w.file, w.offset, err
}
