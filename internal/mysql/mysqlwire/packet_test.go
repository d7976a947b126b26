package mysqlwire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// frame is the reference for cutting a payload into packets.
func frame(payload []byte, sequence uint8) []byte {
	var out []byte
	for {
		n := min(len(payload), packetBytesMax)
		out = append(out, byte(n), byte(n>>8), byte(n>>16), sequence)
		out = append(out, payload[:n]...)
		payload, sequence = payload[n:], sequence+1
		if n < packetBytesMax {
			return out
		}
	}
}

func TestPacketReaderJoinsWhatWasCut(t *testing.T) {
	sizes := []int{0, 1, streamBufferBytes - packetHeaderBytes, streamBufferBytes - packetHeaderBytes + 1,
		packetBytesMax - 1, packetBytesMax, packetBytesMax + 1, 2 * packetBytesMax, 5}
	var stream []byte
	var want [][]byte
	for i, size := range sizes {
		payload := bytes.Repeat([]byte{byte(i + 1)}, size)
		want = append(want, payload)
		stream = append(stream, frame(payload, uint8(i))...)
	}
	in := newPacketReader(bytes.NewReader(stream), streamBufferBytes, eventBytesMax)
	for i := range want {
		got, err := in.next()
		if err != nil || !bytes.Equal(got, want[i]) {
			t.Fatalf("payload %d of %d bytes: got %d bytes, %v", i, len(want[i]), len(got), err)
		}
	}
	if _, err := in.next(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %v", err)
	}
}

func TestPacketReaderLimits(t *testing.T) {
	whole := frame(make([]byte, 100), 0)
	for _, tc := range []struct {
		name   string
		stream []byte
		max    int
		want   error
	}{
		{"too large", whole, 99, ErrPacketTooLarge},
		{"too large joined", frame(make([]byte, packetBytesMax+10), 0), packetBytesMax + 9, ErrPacketTooLarge},
		{"cut in the header", whole[:3], 100, io.ErrUnexpectedEOF},
		{"cut in the payload", whole[:50], 100, io.ErrUnexpectedEOF},
		{"cut before the last packet", frame(make([]byte, packetBytesMax), 0)[:packetHeaderBytes+packetBytesMax], eventBytesMax, io.ErrUnexpectedEOF},
		{"empty", nil, 100, io.EOF},
	} {
		in := newPacketReader(bytes.NewReader(tc.stream), 64, tc.max)
		if _, err := in.next(); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

// ready never promises a packet that is not there, and the reader returns the same payloads
// however the stream is cut.
func TestPacketReaderReady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payloads := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 20).Draw(t, "payloads")
		var stream []byte
		for _, p := range payloads {
			stream = append(stream, frame(p, 0)...)
		}
		cut := rapid.IntRange(0, len(stream)).Draw(t, "cut")
		blocked := errors.New("would block")
		in := newPacketReader(io.MultiReader(bytes.NewReader(stream[:cut]), iotest.ErrReader(blocked)), 128, 1000)
		for i, want := range payloads {
			ready := in.ready()
			got, err := in.next()
			if err != nil {
				if ready || !errors.Is(err, blocked) {
					t.Fatalf("payload %d: ready %v, %v", i, ready, err)
				}
				return
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("payload %d: %x, want %x", i, got, want)
			}
		}
	})
}

// A payload that is read in parts is the same as one read whole, wherever packets end, and so
// is what comes after it. peek shows its beginning and consumes nothing.
func TestPacketReaderParts(t *testing.T) {
	for _, size := range []int{0, 1, 30, partBytesMax, partBytesMax + 1, packetBytesMax - 1, packetBytesMax, packetBytesMax + 1,
		2 * packetBytesMax, 2*packetBytesMax + 5} {
		payload := make([]byte, size)
		for i := range payload {
			payload[i] = byte(i >> 8)
		}
		stream := append(frame(payload, 3), frame([]byte("next"), 0)...)
		in := newPacketReader(bytes.NewReader(stream), streamBufferBytes, eventBytesMax)
		if head, err := in.peek(22); err != nil || !bytes.Equal(head, payload[:min(22, size)]) {
			t.Fatalf("%d bytes: peek %x, %v", size, head, err)
		}
		var got []byte
		for last := false; !last; {
			var part []byte
			var err error
			if part, last, err = in.part(); err != nil || len(part) > partBytesMax {
				t.Fatalf("%d bytes: part of %d bytes, %v", size, len(part), err)
			}
			got = append(got, part...)
		}
		if !bytes.Equal(got, payload) || int(in.sequence) != 3+size/packetBytesMax {
			t.Fatalf("%d bytes: got %d, last packet %d", size, len(got), in.sequence)
		}
		if next, err := in.next(); err != nil || string(next) != "next" {
			t.Fatalf("after %d bytes: %q, %v", size, next, err)
		}
		if _, err := in.peek(22); !errors.Is(err, io.EOF) {
			t.Fatalf("peek at the end: %v", err)
		}
		cut := newPacketReader(bytes.NewReader(stream[:packetHeaderBytes+size/2]), streamBufferBytes, eventBytesMax)
		var err error
		for last := false; !last && err == nil; {
			_, last, err = cut.part()
		}
		if size > 1 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes, half of them there: %v", size, err)
		}
	}
}

func TestServerErrorRoundTrip(t *testing.T) {
	want := &ServerError{Code: 1236, State: "HY000", Message: "purged"}
	got, ok := errors.AsType[*ServerError](parseServerError(want.payload()))
	if !ok || *got != *want {
		t.Errorf("got %+v", got)
	}
	// Before the handshake an error has no state.
	got, ok = errors.AsType[*ServerError](parseServerError([]byte("\xff\x10\x04Too many connections")))
	if !ok || *got != (ServerError{1040, "HY000", "Too many connections"}) {
		t.Errorf("got %+v", got)
	}
}

func TestDumpRequestRoundTrip(t *testing.T) {
	for _, text := range []string{"", "11000000-0000-0000-0000-000000000001:1-5:7", "11000000-0000-0000-0000-000000000001:tag:1"} {
		set, err := gtid.ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		want := dumpRequest{flags: flagHeartbeatV2, serverID: 7, file: "f", offset: 4, exclude: set}
		got, err := parseDumpRequest(want.payload())
		if err != nil || !got.exclude.Equal(set) {
			t.Fatalf("%q: %v, %v", text, got.exclude, err)
		}
		got.exclude, want.exclude = nil, nil
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(dumpRequest{})); diff != "" {
			t.Error(diff)
		}
	}
}

func FuzzPacketReader(f *testing.F) {
	f.Add(frame([]byte("hello"), 0), 10)
	f.Add([]byte{0xff, 0xff, 0xff, 0}, 1<<30)
	f.Fuzz(func(t *testing.T, stream []byte, limit int) {
		in := newPacketReader(bytes.NewReader(stream), 64, limit)
		var total int
		for {
			payload, err := in.next()
			if err != nil {
				break
			}
			if len(payload) > limit {
				t.Fatalf("%d bytes above the limit of %d", len(payload), limit)
			}
			total += packetHeaderBytes + len(payload)
		}
		if total > len(stream) {
			t.Fatalf("%d bytes out of %d", total, len(stream))
		}
	})
}

func FuzzParseDumpRequest(f *testing.F) {
	f.Add(dumpRequest{flags: 2, serverID: 1, offset: 4, exclude: &gtid.Set{}}.payload())
	f.Add([]byte{comBinlogDumpGTID, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, payload []byte) {
		d, err := parseDumpRequest(payload)
		if err != nil {
			return
		}
		again, err := parseDumpRequest(d.payload())
		if err != nil || !again.exclude.Equal(d.exclude) || again.file != d.file || again.offset != d.offset {
			t.Fatalf("%+v became %+v, %v", d, again, err)
		}
	})
}

// Nothing that a hostile or broken peer sends at login causes a panic.
func FuzzHandshakePackets(f *testing.F) {
	f.Add(greeting("9.7.4", 1, capsOurs, bytes.Repeat([]byte{'n'}, nonceBytes)))
	f.Add(loginResponse("u", bytes.Repeat([]byte{1}, 32)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if nonce, err := parseGreeting(payload); err == nil && len(nonce) != nonceBytes {
			t.Fatalf("challenge of %d bytes", len(nonce))
		}
		if got, err := parseLogin(payload); err == nil && len(got.auth) > 255 {
			t.Fatalf("scramble of %d bytes", len(got.auth))
		}
		_, _, _ = authStep(payload, "secret")
	})
}
