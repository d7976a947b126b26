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

	recordHeadBytes   = 5
	recordHandshake   = 0x16
	recordApplication = 0x17
	// passwordRecordsMax is how many records a login may have behind the one that begins it: the
	// password, where caching_sha2_password asks for it.
	passwordRecordsMax = 1
)

// login follows what a client sends until it has logged in. With TLS the router can read nothing but the
// headers of the records (RFC 8446, 5.1): that is enough to tell the handshake from what comes after it.
// The zero value is ready. begun may be asked from any goroutine.
type login struct {
	// begun: the client has sent a login, or part of it.
	begun atomic.Bool

	tls         bool
	head        [packetHeadBytes]byte
	have, skip  int // bytes of head; bytes before the next head
	handshakes  int
	application int
}

// sent takes the next bytes from the client.
func (l *login) sent(b []byte) {
	for len(b) > 0 && (l.tls || !l.begun.Load()) {
		if l.skip > 0 {
			n := min(l.skip, len(b))
			l.skip, b = l.skip-n, b[n:]
			continue
		}
		want := packetHeadBytes
		if l.tls {
			want = recordHeadBytes
		}
		n := copy(l.head[l.have:want], b)
		l.have, b = l.have+n, b[n:]
		switch {
		case !l.tls && l.have >= 3 && !l.maySSL():
			l.begun.Store(true)
		case l.have < want:
		case l.tls:
			l.record()
		default:
			l.tls, l.have, l.skip = true, 0, 4+sslRequestBytes-packetHeadBytes
		}
	}
}

// maySSL tells whether the first packet is a request for TLS, by as much of it as is in head.
func (l *login) maySSL() bool {
	length := int(l.head[0]) | int(l.head[1])<<8 | int(l.head[2])<<16
	return length == sslRequestBytes && (l.have < packetHeadBytes || binary.LittleEndian.Uint16(l.head[4:])&clientSSL != 0)
}

// record counts a record. TLS 1.3 ends its handshake with a record of application data; TLS 1.2 has two of
// the handshake behind the client's hello. A client that takes up a session of TLS 1.2 has begun with its first
// command.
func (l *login) record() {
	switch l.head[0] {
	case recordHandshake:
		l.handshakes++
	case recordApplication:
		l.application++
	}
	l.have, l.skip = 0, int(binary.BigEndian.Uint16(l.head[3:]))
	if l.application >= l.loginRecord() {
		l.begun.Store(true)
	}
}

// loginRecord is which record of application data begins the login.
func (l *login) loginRecord() int {
	if l.handshakes >= 3 {
		return 1
	}
	return 2
}

// noMore tells whether the client has sent no more than a login through TLS. It is asked once the client
// sends nothing any more.
func (l *login) noMore() bool {
	return l.tls && l.begun.Load() && l.application <= l.loginRecord()+passwordRecordsMax
}
