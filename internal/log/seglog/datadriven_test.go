package seglog

import (
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/quorate/quorate/internal/log/vfs"
)

// script runs one file of testdata. Commands:
//
//	open [node=N]                 opens the log, or says why not
//	append [term= vote= commit=]  appends the entries of the input, a line each:
//	                              INDEX TERM plain BYTES | epoch VERSION |
//	                              rotate VERSION | trx SERVER NUMBER COUNT
//	close                         closes the log
//	power-loss seed=N             goes on with the disk after a power loss
//	flip|zero|cut file= [entry=] at= [bytes=]
//	                              spoils a closed log's file from offset at,
//	                              counted from the entry's record if it is given
//	files                         lists the files and their lengths
//	hexdump file=                 prints a file
type script struct {
	t    *testing.T
	disk *vfs.Mem
	log  *Log
	// offsets are the places of the entries in each file, from when the log was last shown.
	offsets map[string]map[uint64]int64
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "scripts"), func(t *testing.T, path string) {
		s := &script{t: t, disk: vfs.NewMem(), offsets: map[string]map[uint64]int64{}}
		datadriven.RunTest(t, path, s.run)
		if s.log != nil {
			_ = s.log.Close()
		}
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	switch d.Cmd {
	case "open":
		o := smallOptions(s.disk)
		if d.HasArg("node") {
			d.ScanArgs(t, "node", &o.Identity[15])
		}
		l, err := Open(o)
		if err != nil {
			return "error: " + err.Error()
		}
		s.log = l
		return s.show()
	case "append":
		return s.append(d)
	case "close":
		err := s.log.Close()
		s.log = nil
		return fmt.Sprint("error: ", err)
	case "power-loss":
		var seed uint64
		d.ScanArgs(t, "seed", &seed)
		s.disk, s.log = s.disk.CrashClone(seed), nil
		return ""
	case "flip", "zero", "cut":
		return s.spoil(d)
	case "files":
		return s.files()
	case "hexdump":
		var file string
		d.ScanArgs(t, "file", &file)
		return hexdump(readFile(t, s.disk, file))
	}
	d.Fatalf(t, "unknown command")
	return ""
}

// hexdump leaves out lines of zeros.
func hexdump(b []byte) string {
	zeros := strings.Repeat("00 ", 8)
	var kept []string
	for line := range strings.Lines(hex.Dump(b)) {
		if strings.Count(line, zeros) < 2 {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func (s *script) append(d *datadriven.TestData) string {
	var entries []Entry
	for line := range strings.Lines(d.Input) {
		var index, term, number uint64
		var kind, version string
		var size, count int
		var server byte
		_, _ = fmt.Sscan(line, &index, &term, &kind, &version)
		switch kind {
		case "plain":
			_, _ = fmt.Sscan(line, &index, &term, &kind, &size)
			entries = append(entries, plain(index, term, size))
		case "epoch":
			entries = append(entries, epoch(index, term, version))
		case "rotate":
			entries = append(entries, rotate(index, term, version))
		case "trx":
			_, _ = fmt.Sscan(line, &index, &term, &kind, &server, &number, &count)
			entries = append(entries, transactions(index, term, server, number, count, 1))
		default:
			d.Fatalf(s.t, "unknown entry %q", line)
		}
	}
	hs := s.log.HardState()
	for name, value := range map[string]*uint64{"term": &hs.Term, "vote": &hs.Vote, "commit": &hs.Commit} {
		if d.HasArg(name) {
			d.ScanArgs(s.t, name, value)
		}
	}
	if err := s.log.Append(entries, &hs); err != nil {
		return "error: " + err.Error()
	}
	return s.show()
}

// show prints the log and remembers where its entries are.
func (s *script) show() string {
	var b strings.Builder
	for i, info := range s.log.Segments() {
		seg := s.log.segments[i]
		s.offsets[seg.name()] = map[uint64]int64{}
		fmt.Fprintf(&b, "%d-%d: %d bytes, sealed %v, before: %q\n", info.FirstIndex, info.LastIndex, info.Bytes, info.Sealed, info.GTIDsBefore)
		for _, r := range recordsOf(s.t, s.log, i) {
			s.offsets[seg.name()][r.index] = r.offset
			fmt.Fprintf(&b, "  %d: term %d, %d bytes at %d\n", r.index, r.term, r.dataBytes, r.offset)
		}
	}
	fmt.Fprintf(&b, "hard state %+v", s.log.HardState())
	if torn := s.log.Stats().TornBytes; torn > 0 {
		fmt.Fprintf(&b, ", torn tail of %d bytes", torn)
	}
	if _, err := allOf(s.log); err != nil {
		fmt.Fprintf(&b, "\nread: %v", err)
	}
	return b.String()
}

func (s *script) spoil(d *datadriven.TestData) string {
	var file string
	var at, entry, n int64
	d.ScanArgs(s.t, "file", &file)
	d.ScanArgs(s.t, "at", &at)
	if d.HasArg("entry") {
		d.ScanArgs(s.t, "entry", &entry)
		at += s.offsets[file][uint64(entry)]
	}
	b := readFile(s.t, s.disk, file)
	switch d.Cmd {
	case "flip":
		b[at] ^= 0x40
	case "zero":
		d.ScanArgs(s.t, "bytes", &n)
		clear(b[at : at+n])
	case "cut":
		b = b[:at]
	}
	writeFile(s.t, s.disk, file, b)
	return fmt.Sprintf("%s at %d of %d", d.Cmd, at, len(b))
}

func (s *script) files() string {
	names, err := s.disk.List(testDir)
	if err != nil {
		s.t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s %d\n", name, len(readFile(s.t, s.disk, name)))
	}
	return b.String()
}
