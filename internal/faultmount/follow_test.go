package faultmount

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"
)

// TestReaderFollowsWriter: who reads what another one has just written finds it, also while
// attributes are asked for: mysqld's dump threads read its binlog so. (The kernel's cache
// showed zeros, once in some 100 000 records.)
func TestReaderFollowsWriter(t *testing.T) {
	f := mount(t)
	path := f.path("log")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const record, records = 113, 50_000
	var end atomic.Int64
	done := make(chan error, 2)
	go func() {
		b := bytes.Repeat([]byte{0xaa}, record)
		for range records {
			if _, err := w.Write(b); err != nil {
				done <- err
				return
			}
			end.Add(record)
		}
		done <- nil
	}()
	go func() {
		for end.Load() < record*records {
			if _, err := os.Stat(path); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	buf := make([]byte, 8192)
	for at := int64(0); at < record*records; {
		n := min(end.Load()-at, int64(len(buf)))
		if n == 0 {
			continue
		}
		got, err := r.ReadAt(buf[:n], at)
		if err != nil {
			t.Fatalf("read %d at %d: %d, %v", n, at, got, err)
		}
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
			t.Fatalf("a zero at %d", at+int64(i))
		}
		at += n
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
