package router

import (
	"encoding/binary"
	"sync/atomic"
)

// What the router reads of a login: the first packet's length and flags, and the headers of TLS records.
const (
	packetHeadBytes = 8  // length, number, and the first half of the client's flags
	sslRequestBytes = 32 // the length of the payload; a login is longer
	clientSSL       = 1 << 11

	recordHeadBytes = 5
	// alertBytes is the size of an alert in TLS 1.3, which looks like application data. Every close ends with
	// an alert (RFC 8446, 5.2 and 6).
	alertBytes        = 2 + 1 + 16
	recordApplication = 0x17
	// passwordRecordsMax is how many records a login may have after its first: the password,
	// where caching_sha2_password asks for it.
	passwordRecordsMax = 1
	// handshakeRecordsMax is how many records of application data a client's handshake may end with: a
	// certificate, the proof of its key, and the end.
	handshakeRecordsMax = 3
)

// login follows a client until it has logged in. With TLS the router can read nothing but the headers of the
// records (RFC 8446, 5.1): that is enough to tell the handshake from what comes after it. The zero value is ready.
// sent is called by one goroutine, answered by one, the others by any.
type login struct {
	// begun says that the client has sent a login, or part of it.
	begun atomic.Bool
	// whole says that all of the login's first packet, or record, was sent: the server owes the next bytes.
	whole atomic.Bool
	// tls says that the client has asked for TLS, and both sides send records.
	tls atomic.Bool
	// answeredLast says that the newest record with content came from the server.
	answeredLast atomic.Bool
	// over says that there is nothing more to learn: further bytes are not examined.
	over atomic.Bool

	first          packetHead
	client, server records
	bytes          int // how many sent has taken, until whole
	// The state of sent: how many records of application data the client has sent, and the number of the one that
	// began the login (0 = none yet). finished says that the record that ends the handshake was among them.
	application, loginAt int
	finished             bool
	talks                atomic.Bool // application > 0
	// finishedBytes is the size of the record with which the server ends its part of a TLS 1.3 handshake; 0 = another
	// version of TLS.
	finishedBytes atomic.Int32
}

// packetHead is the head of the client's first packet.
type packetHead struct {
	b    [packetHeadBytes]byte
	have int
}

// sent takes the next bytes from the client.
func (l *login) sent(b []byte) {
	l.read(b)
	if l.whole.Load() {
		return
	}
	l.bytes += len(b)
	end := l.bytes >= 4+l.first.length()
	if l.tls.Load() {
		end = l.client.have == 0 && l.client.skip == 0
	}
	l.whole.Store(end && l.begun.Load())
}

// read looks at the next bytes from the client, until there is nothing more to learn.
func (l *login) read(b []byte) {
	if l.over.Load() {
		return
	}
	if !l.tls.Load() {
		n := copy(l.first.b[l.first.have:], b)
		l.first.have, b = l.first.have+n, b[n:]
		switch {
		case l.first.have >= 3 && !l.first.maySSL():
			l.begun.Store(true)
			l.over.Store(true)
			return
		case l.first.have < packetHeadBytes:
			return
		}
		l.client.skip = 4 + sslRequestBytes - packetHeadBytes
		l.tls.Store(true)
	}
	l.client.each(b, l.record)
}

// length is the length of the packet's payload, once its bytes have arrived.
func (p *packetHead) length() int { return int(p.b[0]) | int(p.b[1])<<8 | int(p.b[2])<<16 }

// maySSL tells whether the packet may be a request for TLS, by the bytes that have arrived.
func (p *packetHead) maySSL() bool {
	return p.length() == sslRequestBytes && (p.have < packetHeadBytes || binary.LittleEndian.Uint16(p.b[4:])&clientSSL != 0)
}

// answered takes the next bytes from the server, behind its greeting.
func (l *login) answered(b []byte) {
	if !l.tls.Load() || l.over.Load() {
		return
	}
	l.server.each(b, func(kind byte, size int) {
		if kind != recordApplication || size <= alertBytes {
			return
		}
		l.answeredLast.Store(true)
		if !l.talks.Load() {
			l.finishedBytes.Store(int32(size))
		}
	})
}

// record looks at a record of the client. In TLS 1.2 the first application data are the login. In TLS 1.3 the end of
// the handshake looks like application data, too: a certificate (mysqld asks for one, and the client may have none),
// and a message of the same size as the server's last one.
func (l *login) record(kind byte, size int) {
	if kind != recordApplication || size <= alertBytes {
		return
	}
	l.talks.Store(true)
	l.answeredLast.Store(false)
	l.application++
	finished := int(l.finishedBytes.Load())
	switch {
	case l.loginAt > 0:
		l.over.Store(l.application > l.loginAt+passwordRecordsMax)
	case l.finished || finished == 0:
		l.loginAt = l.application
		l.begun.Store(true)
	default:
		l.finished = size == finished || l.application == handshakeRecordsMax
	}
}

// ended tells, for a TLS session that is over, whether it ended with the answer to its login. That is mostly a
// refusal: a client that leaves in order sends a command for that, which has no answer.
func (l *login) ended() bool {
	return l.loginAt > 0 && !l.over.Load() && l.answeredLast.Load()
}

// records finds the heads of TLS records in one direction.
type records struct {
	head       [recordHeadBytes]byte
	have, skip int // bytes of head; bytes before the next head
}

// each calls f with the type and the size of each record whose head is complete.
func (r *records) each(b []byte, f func(kind byte, size int)) {
	for len(b) > 0 {
		n := min(r.skip, len(b))
		r.skip, b = r.skip-n, b[n:]
		n = copy(r.head[r.have:], b)
		if r.have, b = r.have+n, b[n:]; r.have < recordHeadBytes {
			continue
		}
		r.have, r.skip = 0, int(binary.BigEndian.Uint16(r.head[3:]))
		f(r.head[0], r.skip)
	}
}
