package bulk

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// TestFramesAreThoseOfPreviousVersion: the golden file was written by an agent of protocol
// version 1. It has one frame of each type. This version reads them, and writes the same bytes.
func TestFramesAreThoseOfPreviousVersion(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "bulk-v1.golden"))
	if err != nil {
		t.Fatal(err)
	}
	id := entry.StageID{Term: 7, Number: 3}
	tail := Tail{Term: 7, First: 1, Last: 12, Commit: 11, Leading: true}
	e := seglog.Entry{Index: 9, Term: 7, Data: []byte("entry")}
	var count atomic.Uint64
	near, far := net.Pipe()
	written := make(chan error, 1)
	go func() { written <- writeOneOfEach(newStream(NetConn(near), chunkBytes, &count, &count), id, tail, &e) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}

	go func() {
		_, err := near.Write(want)
		written <- err
	}()
	s := newStream(NetConn(far), chunkBytes, &count, &count)
	expect := func(want frameType) []byte {
		t.Helper()
		payload, err := s.expect(want, silenceMax)
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	for _, kind := range []frameType{framePut, frameGet} {
		if got, err := parseID(expect(kind)); err != nil || got != id {
			t.Errorf("stage %v, %v", got, err)
		}
	}
	expect(frameEntries)
	expect(frameTail)
	if got, err := parseTail(expect(frameTail)); err != nil || got != tail {
		t.Errorf("tail %+v, %v", got, err)
	}
	expect(frameReady)
	in := &body{s: s}
	if got, err := in.readEntry(e.Index, 0); err != nil || cmp.Diff(e, got) != "" {
		t.Errorf("entry %+v, %v", got, err)
	}
	if _, err := in.next(); !errors.Is(err, io.EOF) {
		t.Errorf("end of the copy: %v", err)
	}
	expect(frameDone)
	if _, _, err := s.next(silenceMax); !errors.Is(err, seglog.ErrFull) {
		t.Errorf("refusal: %v", err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

// writeOneOfEach writes the frames of the golden file.
func writeOneOfEach(s *stream, id entry.StageID, tail Tail, e *seglog.Entry) error {
	out := bodyWriter{s: s}
	for _, send := range []func() error{
		func() error { return s.send(framePut, encodeID(id)) },
		func() error { return s.send(frameGet, encodeID(id)) },
		func() error { return s.send(frameEntries, []byte{9, 0, 0, 0, 0, 0, 0, 0}) },
		func() error { return s.send(frameTail, nil) },
		func() error { return s.send(frameTail, appendTail(nil, tail)) },
		func() error { return s.send(frameReady, nil) },
		func() error { return out.writeEntry(e) },
		out.flush,
		func() error { return s.send(framePing, nil) },
		func() error { return s.sendEnd(out.sum) },
		func() error { return s.send(frameDone, nil) },
		func() error { return s.refuse(refusedFull, "no room") },
	} {
		if err := send(); err != nil {
			return err
		}
	}
	return nil
}
