package mysqlwire

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/strangers"
)

// ErrEndOfLog is what a cursor of a ReaderRequest with Once ends with.
var ErrEndOfLog = errors.New("mysqlwire: end of what was committed")

// Reader is an account of those who read the log downstream: a replica of
// somebody else's, a tool that captures changes.
type Reader struct {
	User         string
	PasswordHash PasswordHash
	// Allow is where it may connect from; empty = from anywhere.
	Allow []netip.Prefix
	// Decompress sends the events of a compressed transaction one by one, as
	// they were before, for readers that do not know TRANSACTION_PAYLOAD.
	Decompress bool
	// SQL: its statements are executed in the local mysqld, by the account with its name and Password.
	SQL      bool
	Password string
	// Site: it may ask the cluster as another site, by SiteQuery.
	Site bool
}

// PasswordHash is SHA256(SHA256(password)), with which a scramble of
// caching_sha2_password can be verified but not made.
type PasswordHash [sha256.Size]byte

// HashPassword returns the hash of a password.
func HashPassword(password string) PasswordHash {
	once := sha256.Sum256([]byte(password))
	return sha256.Sum256(once[:])
}

// verify reports whether auth answers the challenge: XORed with what both sides
// know, it must be the preimage of the hash.
func (h PasswordHash) verify(auth, nonce []byte) bool {
	if len(auth) != sha256.Size {
		return false
	}
	once := sha256.Sum256(append(h[:], nonce...))
	subtle.XORBytes(once[:], once[:], auth)
	twice := sha256.Sum256(once[:])
	return subtle.ConstantTimeCompare(twice[:], h[:]) == 1
}

// ReadersConfig makes a Feed one for downstream readers, instead of one for the
// node's own mysqld.
type ReadersConfig struct {
	Accounts []Reader
	// ConnectionsMax bounds the connections of all readers that have logged in.
	ConnectionsMax int
	Source         ReaderSource
	// Certificate is what TLS shows at the time, and its key; nil = there is none now, and
	// TLS is not offered. Clients of other hosts have to use TLS.
	Certificate func() *tls.Certificate
	// SQL connects to the local mysqld, for readers with SQL; nil = there is none. Barrier waits, for a while, until this node
	// knows what is committed anywhere; nil = it does already.
	SQL     func(context.Context) (net.Conn, error)
	Barrier func(context.Context)
	// Site answers what a reader with Site asks; nil = nobody does.
	Site func(ctx context.Context, user string, from net.Addr, request []byte) (answer []byte)
}

// SiteQuery is what stands before a request of another site, in base64, in a statement. The answer is one row.
const SiteQuery = "QUORATE SITE "

// SiteTimeout bounds an answer.
const SiteTimeout = 30 * time.Second

// ReaderSource gives a feed what it serves to readers.
type ReaderSource interface {
	// StartReader opens a cursor. Errors as in Source.Start.
	StartReader(ctx context.Context, request ReaderRequest) (Cursor, error)
	// Files lists the files that a reader can begin with, oldest first. There is
	// at least one.
	Files() ([]ReaderFile, error)
	// GTIDs returns the committed transactions, and those of them that are
	// purged. They are shared.
	GTIDs() (executed, purged *gtid.Set)
}

// ReaderRequest is where a reader begins.
type ReaderRequest struct {
	// From is the index of the first entry; 0 = the source finds it by Exclude.
	// One that is not committed so far is waited for.
	From uint64
	// Exclude is what the reader has. It only says where to begin, if From does
	// not: a cursor may bring transactions that are in it.
	Exclude *gtid.Set
	// Once ends the cursor with ErrEndOfLog when it has brought what was
	// committed when it was opened.
	Once bool
}

// ReaderFile is a file that can be asked for by name. A file has no life of its
// own: its name is the index of the entry with which it begins, what it holds
// follows from the log, and so both are the same on every node.
//
// A file ends at an entry that begins an epoch or a binlog file of the primary,
// and behind each staged transaction; the next one has the index behind as its
// name.
type ReaderFile struct {
	Index uint64
	// Bytes is about how long it is: what its entries take in the log.
	Bytes int64
	// Before are the transactions before it. The set is shared.
	Before *gtid.Set
}

const (
	filePrefix = "quorate."
	// plainPrefix is for readers with Decompress. Positions count what is sent,
	// so theirs are others, and their names must be, too.
	plainPrefix = "quorate-plain."
	// fileDigits is enough for every index, and makes names sort.
	fileDigits = 20
)

func fileName(plain bool, index uint64) string {
	prefix := filePrefix
	if plain {
		prefix = plainPrefix
	}
	return fmt.Sprintf("%s%0*d", prefix, fileDigits, index)
}

// parseFileName returns the index that a file's name stands for. Of another kind
// of file, or no file of ours, it returns what MySQL says of an unknown one.
func parseFileName(plain bool, name string) (uint64, error) {
	prefix := filePrefix
	if plain {
		prefix = plainPrefix
	}
	digits, ok := strings.CutPrefix(name, prefix)
	index, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || len(digits) != fileDigits || index == 0 {
		return 0, errNoFile(name)
	}
	return index, nil
}

// fatal is error 1236, which stops a replica until somebody looks.
func fatal(format string, args ...any) *ServerError {
	return &ServerError{Code: 1236, State: "HY000", Message: fmt.Sprintf(format, args...)}
}

func errNoFile(name string) *ServerError {
	return fatal("Could not find first log file name in binary log index file (asked for '%s')", name)
}

// ErrPurged is what a reader is told that begins, by file, before the log does.
func ErrPurged(index uint64) *ServerError { return errNoFile(fileName(false, index)) }

// ErrPurgedGTIDs is what a reader is told that lacks transactions which the log
// no longer has. The text is that of ER_SOURCE_HAS_PURGED_REQUIRED_GTIDS.
func ErrPurgedGTIDs(sent, missing *gtid.Set) *ServerError {
	const shownBytesMax = 200 // of each set; a client cuts a message at 512
	return fatal("Cannot replicate because the source purged required binary logs. Replicate the missing "+
		"transactions from elsewhere, or provision a new replica from backup. "+
		"The GTID set sent by the replica is '%s', and the missing transactions are '%s'",
		cut(sent.String(), shownBytesMax), cut(missing.String(), shownBytesMax))
}

func cut(s string, bytesMax int) string {
	if len(s) <= bytesMax {
		return s
	}
	return s[:bytesMax] + "…"
}

// readerAccount is an account and what was sent to it.
type readerAccount struct {
	Reader
	stats FeedCounters
	// dumping and transactions are of readers alone.
	dumping      atomic.Int64
	transactions atomic.Uint64
	index        atomic.Uint64
	// from is where its newest login came from.
	from atomic.Pointer[netip.Addr]
}

// ReaderStats counts what one account was sent since the feed was made.
type ReaderStats struct {
	User string
	// Dumps are open now, DumpsTotal were begun.
	Dumps      int
	DumpsTotal uint64
	// Refused were turned away: a wrong password, or a host that is not allowed.
	Refused                     uint64
	Transactions, Events, Bytes uint64
	// Index is the entry that was sent last, to any of its connections.
	Index uint64
}

// ReaderStats returns the counters of each account.
func (f *Feed) ReaderStats() (all []ReaderStats) {
	for _, a := range f.accounts {
		all = append(all, ReaderStats{
			User: a.User, Dumps: int(a.dumping.Load()), DumpsTotal: a.stats.dumps.Load(), Refused: a.stats.refused.Load(),
			Transactions: a.transactions.Load(), Events: a.stats.events.Load(), Bytes: a.stats.bytes.Load(),
			Index: a.index.Load(),
		})
	}
	return all
}

// checkReaders is NewFeed's look at a feed for readers.
func (f *Feed) checkReaders() error {
	r := f.cfg.Readers
	if r.Source == nil || r.ConnectionsMax < 1 || r.Certificate == nil {
		return errors.New("feed for readers without source, connections or certificate")
	}
	f.tls = r.tlsConfig()
	for _, account := range r.Accounts {
		if account.User == "" || account.PasswordHash == (PasswordHash{}) || account.PasswordHash == HashPassword("") {
			return fmt.Errorf("reader %q without a name or a password", account.User)
		}
		if account.SQL && account.Password == "" {
			return fmt.Errorf("reader %q has SQL, and a password that nobody knows", account.User)
		}
		f.accounts = append(f.accounts, &readerAccount{Reader: account})
	}
	return nil
}

// greetReader logs a reader in. Whether it has to use TLS is told by where it comes from, not by
// where the port listens: on 0.0.0.0 a reader on the node's own host sends nothing over a network.
func (s *feedSession) greetReader(ctx context.Context) error {
	l := welcome{
		version: s.feed.cfg.ServerVersion(), connectionID: s.id, verify: s.isReader, admit: s.admit,
		tlsRequired: !strangers.FromHere(s.conn),
		turn:        func() (func(), error) { return s.stay.Turn(ctx) },
	}
	if s.feed.cfg.Readers.Certificate() != nil {
		l.tls = s.feed.tls
	}
	if slices.ContainsFunc(s.feed.accounts, func(a *readerAccount) bool { return a.SQL }) {
		l.caps = capConnectWithDB
	}
	return l.greet(s.wire)
}

// isReader tells whether a client's answer is that of a reader, and notes which.
func (s *feedSession) isReader(got clientLogin, nonce []byte) bool {
	i := slices.IndexFunc(s.feed.accounts, func(a *readerAccount) bool { return a.User == got.user })
	if i < 0 {
		return false
	}
	account := s.feed.accounts[i]
	if !account.PasswordHash.verify(got.auth, nonce) || !strangers.Allowed(account.Allow, s.conn.RemoteAddr()) {
		account.stats.refused.Add(1)
		return false
	}
	account.from.Store(new(strangers.Source(s.conn.RemoteAddr())))
	s.reader, s.plain = account, account.Decompress
	s.sql = sqlSession{began: time.Now(), database: got.database, charset: got.charset}
	return true
}

// isReaders tells whether the newest login of a reader came from a source.
func (f *Feed) isReaders(source netip.Addr) bool {
	return slices.ContainsFunc(f.accounts, func(a *readerAccount) bool {
		from := a.from.Load()
		return from != nil && *from == source
	})
}

// allow is where any of the accounts may connect from; empty = from anywhere.
func (r *ReadersConfig) allow() (all []netip.Prefix) {
	for _, account := range r.Accounts {
		if len(account.Allow) == 0 {
			return nil
		}
		all = append(all, account.Allow...)
	}
	return all
}
