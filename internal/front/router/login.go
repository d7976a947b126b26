package router

import (
	"encoding/binary"
	"sync/atomic"
)

// What the router looks at of a login: the first packet's length and flags, and the headers of TLS records.
const (
	packetHeadBytes = 8  // length, number, and the first half of the client's flags
	sslRequestBytes = 32 // of its payload; a login has more
	clientSSL       = 1 << 11

	recordHeadBytes = 5
	// alertBytes is the size of an alert of TLS 1.3, which looks like application data: every close ends with
	// one (RFC 8446, 5.2 and 6).
	alertBytes        = 2 + 1 + 16
	recordApplication = 0x17
	// passwordRecordsMax is how many records a login may have behind the one that begins it: the
	// password, where caching_sha2_password asks for it.
	passwordRecordsMax = 1
	// handshakeRecordsMax is how many records of application data end a client's handshake at most: a certificate,
	// the proof of its key, and the end.
	handshakeRecordsMax = 3
)

// login follows a client until it has logged in. With TLS the router can read nothing but the headers of the
// records (RFC 8446, 5.1): that is enough to tell the handshake from what comes after it. The zero value is ready.
// sent is called by one goroutine, answered by one, the others by any.
type login struct {
	// begun: the client has sent a login, or part of it.
	begun atomic.Bool
	// tls: the client has asked for it, and both sides send records.
	tls atomic.Bool
	// answeredLast: the server has sent the last record with content.
	answeredLast atomic.Bool
	// over: there is nothing more to learn. The session's other bytes are not looked at.
	over atomic.Bool

	first          packetHead
	client, server records
	// What sent keeps: how many records of application data the client has sent, and which of them began the login,
	// 0 = none so far. finished: the one that ends the handshake was among them.
	application, loginAt int
	finished             bool
	talks                atomic.Bool // application > 0
	// finishedBytes is the size of the record with which the server ends its part of a handshake of TLS 1.3; 0 = it is
	// another version.
	finishedBytes atomic.Int32
}

// packetHead is the head of the client's first packet.
type packetHead struct {
	b    [packetHeadBytes]byte
	have int
}

// sent takes the next bytes from the client.
func (l *login) sent(b []byte) {
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

// maySSL tells whether the packet is a request for TLS, by as much of it as has come.
func (p *packetHead) maySSL() bool {
	length := int(p.b[0]) | int(p.b[1])<<8 | int(p.b[2])<<16
	return length == sslRequestBytes && (p.have < packetHeadBytes || binary.LittleEndian.Uint16(p.b[4:])&clientSSL != 0)
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

// record looks at a record of the client. In TLS 1.2 application data begin with the login. In TLS 1.3 the end of
// the handshake looks like it: a certificate, or none, which mysqld asks for, and a message that has the size of the
// server's last one.
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

// ended tells, of a session through TLS that is over, whether it went no further than the answer to a login: a
// refusal, most of the time. Who leaves in order says so, and gets no answer.
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
