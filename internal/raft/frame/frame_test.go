package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/iotest"
)

var (
	testFormat = Format{Magic: 0x5451, Version: 1} // "QT"
	errCorrupt = errors.New("corrupt")
	errRoom    = errors.New("no room")
)

const testBytesMax = 1 << 10

func testReader(r io.Reader) *Reader {
	return NewReader(r, testFormat, errCorrupt, func(_ uint8, length uint32) ([]byte, error) {
		if length > testBytesMax {
			return nil, errRoom
		}
		return make([]byte, length), nil
	})
}

func testFrame(kind uint8, payload []byte) []byte {
	b := append(make([]byte, HeaderBytes), payload...)
	testFormat.Fill(b, kind)
	return b
}

// TestFrame: each byte is where the format says.
func TestFrame(t *testing.T) {
	want := []byte{'Q', 'T', 1, 7, 3, 0, 0, 0, 0xd5, 0x53, 0x04, 0x60, 'a', 'b', 'c'}
	got := testFrame(7, []byte("abc"))
	if !bytes.Equal(got, want) {
		t.Fatalf("% x, not % x", got, want)
	}
	inPieces := make([]byte, HeaderBytes)
	testFormat.Begin(inPieces, 7, 3).Add([]byte("a")).Add([]byte("bc")).End(inPieces)
	if !bytes.Equal(inPieces, want[:HeaderBytes]) {
		t.Errorf("in pieces: % x", inPieces)
	}
}

// TestEveryFlippedBitIsFound: a damaged frame is never read as a frame.
func TestEveryFlippedBitIsFound(t *testing.T) {
	whole := testFrame(7, []byte("payload"))
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		// A length that has become larger is found at the end of the stream at the latest.
		if kind, payload, err := testReader(bytes.NewReader(b)).Next(); err == nil {
			t.Errorf("bit %d: type %d, %q", bit, kind, payload)
		}
	}
}

// TestEndOfStream: the end of a stream after a frame has another error than the end within a frame.
func TestEndOfStream(t *testing.T) {
	whole := testFrame(7, []byte("payload"))
	for n := range len(whole) + 1 {
		r := testReader(iotest.OneByteReader(bytes.NewReader(whole[:n])))
		want := io.ErrUnexpectedEOF
		switch n {
		case 0:
			want = io.EOF
		case len(whole):
			if _, _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
			want = io.EOF
		}
		if _, _, err := r.Next(); !errors.Is(err, want) || errors.Is(err, errCorrupt) {
			t.Errorf("%d bytes: %v, not %v", n, err, want)
		}
	}
}

// TestNoRoom: a frame whose header announces too many bytes is refused.
func TestNoRoom(t *testing.T) {
	if _, _, err := testReader(bytes.NewReader(testFrame(7, make([]byte, testBytesMax+1)))).Next(); !errors.Is(err, errRoom) {
		t.Error(err)
	}
}

// TestReadAllocatesNothing: Next allocates nothing beside the room for the payload.
func TestReadAllocatesNothing(t *testing.T) {
	whole, room := testFrame(7, []byte("payload")), make([]byte, 7)
	src := bytes.NewReader(nil)
	r := NewReader(src, testFormat, errCorrupt, func(uint8, uint32) ([]byte, error) { return room, nil })
	if n := testing.AllocsPerRun(100, func() {
		src.Reset(whole)
		if _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a frame", n)
	}
}

// FuzzReader gives a reader anything. The frames that it reads, written again, are the bytes that were read.
func FuzzReader(f *testing.F) {
	f.Add(testFrame(7, []byte("payload")))
	f.Add(append(testFrame(0, nil), testFrame(255, []byte{0})...))
	f.Add(testFrame(7, []byte("payload"))[:HeaderBytes+3])
	f.Fuzz(func(t *testing.T, stream []byte) {
		r, rest := testReader(bytes.NewReader(stream)), stream
		for {
			kind, payload, err := r.Next()
			if err != nil {
				if !errors.Is(err, errCorrupt) && !errors.Is(err, errRoom) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
			again := testFrame(kind, payload)
			if !bytes.HasPrefix(rest, again) {
				t.Fatalf("type %d, % x was read from % x", kind, payload, rest)
			}
			rest = rest[len(again):]
		}
	})
}

// TestRoomGrows: the reader makes room only for bytes that have come, not for those that are announced. The payload
// comes whole.
func TestRoomGrows(t *testing.T) {
	reader := func(src io.Reader) *Reader {
		return NewReader(src, testFormat, errCorrupt, func(uint8, uint32) ([]byte, error) { return nil, nil })
	}
	for _, length := range []int{0, 1, roomBytes - 1, roomBytes, roomBytes + 1, 2*roomBytes + 1, 5 * roomBytes} {
		payload := make([]byte, length)
		for i := range payload {
			payload[i] = byte(i % 251)
		}
		kind, got, err := reader(bytes.NewReader(testFrame(7, payload))).Next()
		if err != nil || kind != 7 || !bytes.Equal(got, payload) {
			t.Errorf("%d bytes: kind %d, %d bytes, %v", length, kind, len(got), err)
		}
	}
	header := testFrame(7, nil)
	binary.LittleEndian.PutUint32(header[4:], 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := reader(bytes.NewReader(header)).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > 2*roomBytes {
		t.Errorf("%d bytes of room for an announcement", made)
	}
}
