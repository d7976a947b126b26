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

// ErrEndOfLog ends a cursor whose ReaderRequest has Once.
var ErrEndOfLog = errors.New("mysqlwire: end of what was committed")

// Reader is an account for a downstream reader of the log: a replica outside of the cluster, or
// a tool that captures changes.
type Reader struct {
	User         string
	PasswordHash PasswordHash
	// Allow has the addresses from which it may connect; empty = from anywhere.
	Allow []netip.Prefix
	// Decompress sends the events of a compressed transaction one by one, uncompressed, for
	// readers that do not know TRANSACTION_PAYLOAD.
	Decompress bool
	// SQL says that its statements are executed in the local mysqld, as the account of the same name,
	// with Password.
	SQL      bool
	Password string
	// Site says that it may send the requests of another site (SiteQuery).
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

// verify reports whether auth answers the challenge nonce: XORed with SHA256(hash + nonce), it
// must be the preimage of the hash.
func (h PasswordHash) verify(auth, nonce []byte) bool {
	if len(auth) != sha256.Size {
		return false
	}
	once := sha256.Sum256(append(h[:], nonce...))
	subtle.XORBytes(once[:], once[:], auth)
	twice := sha256.Sum256(once[:])
	return subtle.ConstantTimeCompare(twice[:], h[:]) == 1
}

// ReadersConfig makes a Feed serve downstream readers instead of the node's own mysqld.
type ReadersConfig struct {
	Accounts []Reader
	// ConnectionsMax bounds the connections of all readers that have logged in.
	ConnectionsMax int
	Source         ReaderSource
	// Certificate returns the current TLS certificate with its key; nil = there is none now,
	// and TLS is not offered. Clients of other hosts must use TLS.
	Certificate func() *tls.Certificate
	// SQL connects to the local mysqld, for readers with SQL; nil = this node has no mysqld. Barrier waits, for a
	// bounded time, until this node knows everything that is committed anywhere; nil = no wait is needed.
	SQL     func(context.Context) (net.Conn, error)
	Barrier func(context.Context)
	// Site answers the requests of a reader with Site; nil = such requests are refused.
	Site func(ctx context.Context, user string, from net.Addr, request []byte) (answer []byte)
}

// SiteQuery begins the statement that has a request of another site, in base64. The answer is one row.
const SiteQuery = "QUORATE SITE "

// SiteTimeout bounds the time for one answer.
const SiteTimeout = 30 * time.Second

// ReaderSource gives a feed what it serves to readers.
type ReaderSource interface {
	// StartReader opens a cursor. Errors as in Source.Start.
	StartReader(ctx context.Context, request ReaderRequest) (Cursor, error)
	// Files lists the files that a reader can begin with, oldest first. There is
	// at least one.
	Files() ([]ReaderFile, error)
	// GTIDs returns the committed transactions, and the purged ones among them. The caller must
	// not change the sets.
	GTIDs() (executed, purged *gtid.Set)
}

// ReaderRequest is where a reader begins.
type ReaderRequest struct {
	// From is the index of the first entry; 0 = the source finds it by Exclude. If the entry is
	// not committed yet, the cursor waits for it.
	From uint64
	// Exclude has the reader's transactions. It only says where to begin, if From is 0: the
	// cursor may still return transactions that are in it.
	Exclude *gtid.Set
	// Once ends the cursor with ErrEndOfLog after everything that was committed when the cursor
	// was opened.
	Once bool
}

// ReaderFile is a file that a reader can ask for by name. The file is not stored anywhere: its
// name is the index of the entry with which it begins, and its content follows from the log. So
// both are the same on every node.
//
// A file ends in front of an entry that begins an epoch or a binlog file of the primary, behind
// each staged transaction, and behind the entry that makes it longer than 4 GiB. The next file
// is named by the index of the entry that follows.
type ReaderFile struct {
	Index uint64
	// Bytes is roughly the length of the file: how much its entries take in the log.
	Bytes int64
	// Before has the transactions before the file. The caller must not change the set.
	Before *gtid.Set
}

const (
	filePrefix = "quorate."
	// plainPrefix is for readers with Decompress. Positions count the bytes that are sent, so
	// these readers have other positions, and need other file names.
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

// parseFileName returns the index that a file's name stands for. For a file of the other
// prefix, or a name that is not one of ours, it returns MySQL's error for an unknown file.
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

// ErrPurged is the error for a reader that asks for a file which the log no longer has.
func ErrPurged(index uint64) *ServerError { return errNoFile(fileName(false, index)) }

// ErrPurgedGTIDs is the error for a reader that lacks transactions which the log no longer has.
// It has the text of ER_SOURCE_HAS_PURGED_REQUIRED_GTIDS.
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

// readerAccount is an account with the counters of what was sent to it.
type readerAccount struct {
	Reader
	stats FeedCounters
	// These three have no counterpart in FeedCounters: open dumps, transactions, and the index
	// of the entry that was sent last.
	dumping      atomic.Int64
	transactions atomic.Uint64
	index        atomic.Uint64
	// from is the address of its newest login.
	from atomic.Pointer[netip.Addr]
}

// ReaderStats counts what one account was sent since the feed was made.
type ReaderStats struct {
	User string
	// Dumps counts open dumps, DumpsTotal all that were begun.
	Dumps      int
	DumpsTotal uint64
	// Refused counts logins that were turned away: a wrong password, or a host that is not
	// allowed.
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

// checkReaders checks the configuration of a feed for readers, for NewFeed, and sets up its
// accounts.
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

// greetReader logs a reader in. The reader's address decides whether it must use TLS, not the
// address on which the port listens: even with 0.0.0.0, a reader on the node's own host sends
// nothing over a network.
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

// isReader tells whether a client's answer is a valid login of a reader, and notes the reader
// in the session.
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

// isReaders tells whether some account's newest login came from this address.
func (f *Feed) isReaders(source netip.Addr) bool {
	return slices.ContainsFunc(f.accounts, func(a *readerAccount) bool {
		from := a.from.Load()
		return from != nil && *from == source
	})
}

// allow has the addresses from which at least one account may connect; empty = from anywhere.
func (r *ReadersConfig) allow() (all []netip.Prefix) {
	for _, account := range r.Accounts {
		if len(account.Allow) == 0 {
			return nil
		}
		all = append(all, account.Allow...)
	}
	return all
}
