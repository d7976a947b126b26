package seglog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

const (
	// benchFileBytesMax limits the data of a benchmark on the disk: after so many bytes it goes on in a new
	// log.
	benchFileBytesMax = 512 << 20
	// benchSlice is how long each side of a comparison runs before the next side has its turn, benchTurns how
	// often. The machine is shared and noisy, so a figure is the median of its slices, and a ratio is the
	// median of the ratios of the turns. A cell of four sides takes 7 s, all nine cells a minute. A slice lasts
	// until all its proposers have their answers. For 256 proposers of 1 MiB that takes seconds, so no turn
	// begins after benchTurnsTime.
	benchSlice     = 250 * time.Millisecond
	benchTurns     = 7
	benchTurnsTime = 6 * time.Second

	// groupEntriesMax and groupBytesMax end a group. queueMax is how many entries may wait for a group. They
	// are as in package consensus (driver.go, driver_write.go).
	groupEntriesMax = 1024
	groupBytesMax   = 8 << 20
	queueMax        = 1024

	// floorBytes is the length of the file for the floor. It has room for several of the largest groups, each
	// of less than groupBytesMax and one entry.
	floorBytes = 64 << 20

	// oldBytes is how much of the log is written before the reader begins: eight times the cache.
	oldBytes = 8 * CacheBytesDefault
	// readBytes is the most that the reader asks for at once.
	readBytes = 1 << 20
)

// benchSizes are the data of one entry, in bytes.
func benchSizes() []int { return []int{1 << 10, 16 << 10, 1 << 20} }

func sizeName(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%dMiB", bytes>>20)
	}
	return fmt.Sprintf("%dKiB", bytes>>10)
}

// benchDir returns a directory on a real disk: QUORATE_BENCH_DIR, or a temporary one.
func benchDir(b *testing.B) string {
	if dir := os.Getenv("QUORATE_BENCH_DIR"); dir != "" {
		sub, err := os.MkdirTemp(dir, "seglog")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(sub) })
		return sub
	}
	return b.TempDir()
}

// benchData returns the data of entries with transactions, so that the log checks the events and keeps the
// GTIDs. The same data is appended again and again, because the cost of making it is not the log's.
func benchData(bytes int) [][]byte {
	// The transaction's events add to the length of the statement. They always add the same number of bytes.
	const statementBytes = 1
	around := len(transactions(1, 1, 1, 1, 1, statementBytes).Data) - statementBytes
	data := make([][]byte, 16)
	for i := range data {
		data[i] = transactions(1, 1, 1, uint64(i+1), 1, bytes-around).Data
	}
	return data
}

// proposal is the data of an entry on its way to the disk. done is closed when the entry is on the disk.
type proposal struct {
	data []byte
	done chan struct{}
}

// slice is the result of one slice of time.
type slice struct {
	// waits are how long each proposer waited for its entry, groups how long each group commit took; both are
	// sorted. sizes are the bytes of data of the groups, in the order of the groups.
	waits, groups []time.Duration
	sizes         []int
	bytes         int64
	took          time.Duration
}

// quantile returns a quantile of sorted durations, in microseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))]) / float64(time.Microsecond)
}

func waitP50(s *slice) float64   { return quantile(s.waits, 0.5) }
func waitP99(s *slice) float64   { return quantile(s.waits, 0.99) }
func groupP50(s *slice) float64  { return quantile(s.groups, 0.5) }
func groupP99(s *slice) float64  { return quantile(s.groups, 0.99) }
func perSecond(s *slice) float64 { return float64(len(s.waits)) / s.took.Seconds() }
func megabytes(s *slice) float64 { return float64(s.bytes) / 1e6 / s.took.Seconds() }
func perGroup(s *slice) float64  { return float64(len(s.waits)) / float64(len(s.groups)) }

func median(figures []float64) float64 {
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// medianOf is the median of a figure of one side.
func medianOf(turns []turn, side int, figure func(*slice) float64) float64 {
	all := make([]float64, len(turns))
	for i := range turns {
		all[i] = figure(&turns[i][side])
	}
	return median(all)
}

// ratioOf returns the median of the ratio between the figures of two sides, taken for each turn.
func ratioOf(turns []turn, side, to int, figure func(*slice) float64) float64 {
	all := make([]float64, len(turns))
	for i := range turns {
		all[i] = figure(&turns[i][side]) / figure(&turns[i][to])
	}
	return median(all)
}

// load is a number of proposers and a log. Each proposer waits for its own entry.
type load struct {
	log       *Log
	data      [][]byte
	proposers int
	group     []Entry
}

// run lets the proposers propose for benchSlice. Meanwhile it does what the append goroutine of package
// consensus does: it appends everything that waits as one group.
func (l *load) run(b *testing.B) slice {
	queue := make(chan *proposal, queueMax)
	each := make([][]time.Duration, l.proposers)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range l.proposers {
		wg.Go(func() {
			p := &proposal{data: l.data[i%len(l.data)], done: make(chan struct{})}
			// At least once: on a busy machine a slice may be over before this runs.
			for now := time.Now(); len(each[i]) == 0 || now.Sub(begin) < benchSlice; {
				then := now
				queue <- p
				<-p.done
				now = time.Now()
				each[i] = append(each[i], now.Sub(then))
			}
		})
	}
	go func() {
		wg.Wait()
		close(queue)
	}()
	var s slice
	var batch []*proposal
	for first := range queue {
		batch = append(batch[:0], first)
		size := len(first.data)
	more:
		for len(batch) < groupEntriesMax && size < groupBytesMax {
			select {
			case p, ok := <-queue:
				if !ok {
					break more
				}
				batch, size = append(batch, p), size+len(p.data)
			default:
				break more
			}
		}
		s.groups = append(s.groups, l.commit(b, batch))
		s.sizes, s.bytes = append(s.sizes, size), s.bytes+int64(size)
		for _, p := range batch {
			p.done <- struct{}{}
		}
	}
	s.took = time.Since(begin)
	s.waits = slices.Concat(each...)
	slices.Sort(s.waits)
	slices.Sort(s.groups)
	return s
}

// commit appends one group.
func (l *load) commit(b *testing.B, batch []*proposal) time.Duration {
	l.group = l.group[:0]
	next := l.log.LastIndex() + 1
	for i, p := range batch {
		l.group = append(l.group, Entry{Index: next + uint64(i), Term: 1, Data: p.data})
	}
	begin := time.Now()
	if err := l.log.Append(l.group, nil); err != nil {
		b.Error(err) // the proposers must get their answers
	}
	return time.Since(begin)
}

// again appends for benchSlice, without proposers, groups of the sizes that another slice had. This is the
// log's own time, to be compared with that of a bare file.
func (l *load) again(b *testing.B, sizes []int) slice {
	var s slice
	var batch []*proposal
	begin := time.Now()
	for i := 0; time.Since(begin) < benchSlice; i++ {
		n := 0
		for batch = batch[:0]; n < sizes[i%len(sizes)]; n += len(l.data[0]) {
			batch = append(batch, &proposal{data: l.data[len(batch)%len(l.data)]})
		}
		s.groups, s.bytes = append(s.groups, l.commit(b, batch)), s.bytes+int64(n)
	}
	s.took = time.Since(begin)
	slices.Sort(s.groups)
	return s
}

// bareFile shows what the disk can do: pwrite and fdatasync. With a file that was filled with zeros before,
// this is the floor. A growing file shows how much the zeros save.
type bareFile struct {
	file     vfs.File
	prepared bool
	data     []byte
	at       int64
}

func openBare(b *testing.B, dir string, prepared bool) *bareFile {
	file, err := vfs.OS{}.Create(filepath.Join(dir, fmt.Sprintf("bare-%v", prepared)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	f := &bareFile{file: file, prepared: prepared, data: bytes.Repeat([]byte{'x'}, 2*groupBytesMax)}
	if prepared {
		_, err = file.WriteAt(make([]byte, floorBytes), 0)
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// begin goes back to the start of a prepared file, and empties any other.
func (f *bareFile) begin(b *testing.B) {
	f.at = 0
	if f.prepared {
		return
	}
	err := f.file.Truncate(0)
	if err == nil {
		err = f.file.Sync()
	}
	if err != nil {
		b.Fatal(err)
	}
}

// run writes for benchSlice, group by group, the sizes that a slice of the log wrote.
func (f *bareFile) run(b *testing.B, sizes []int) slice {
	var s slice
	begin := time.Now()
	for i := 0; time.Since(begin) < benchSlice; i++ {
		n := sizes[i%len(sizes)]
		if f.at+int64(n) > floorBytes {
			f.begin(b)
		}
		start := time.Now()
		_, err := f.file.WriteAt(f.data[:n], f.at)
		if err == nil {
			err = f.file.SyncData()
		}
		if err != nil {
			b.Fatal(err)
		}
		s.groups = append(s.groups, time.Since(start))
		f.at, s.bytes = f.at+int64(n), s.bytes+int64(n)
	}
	s.took = time.Since(begin)
	slices.Sort(s.groups)
	return s
}

// turn is one slice of each side of a comparison.
type turn []slice

// figures are the metrics of a cell, and its row of the table in the same order.
type figures struct {
	names  []string
	values []float64
}

func (f *figures) add(name string, value float64) {
	f.names, f.values = append(f.names, name), append(f.values, value)
}

// report gives the metrics to the testing package. The time of one iteration means nothing here: the 0 leaves
// it out.
func (f *figures) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for i, name := range f.names {
		b.ReportMetric(f.values[i], name)
	}
}

// benchTable collects rows for people to read. Each line begins with a bar.
type benchTable struct {
	title string
	lines []string
}

func (t *benchTable) add(name string, f *figures) {
	if len(t.lines) == 0 {
		t.lines = append(t.lines, "\t"+strings.Join(f.names, "\t")+"\t")
	}
	line := name
	for _, v := range f.values {
		switch {
		case v < 10:
			line += fmt.Sprintf("\t%.2f", v)
		case v < 100:
			line += fmt.Sprintf("\t%.1f", v)
		default:
			line += fmt.Sprintf("\t%.0f", v)
		}
	}
	t.lines = append(t.lines, line+"\t")
}

func (t *benchTable) print() {
	if len(t.lines) == 0 {
		return
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range t.lines {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
	fmt.Printf("| %s\n", t.title)
	for line := range strings.Lines(out.String()) {
		fmt.Printf("| %s", line)
	}
}

// BenchmarkAppend measures group commit on a real disk: with proposers, then with groups of the same sizes and
// no proposers, and beside these the floor: bare pwrite and fdatasync of the same bytes.
func BenchmarkAppend(b *testing.B) {
	t := benchTable{title: "group commit; floor: bare pwrite+fdatasync of the same groups into zeros, growing: behind the file's end"}
	for _, size := range benchSizes() {
		for _, proposers := range []int{1, 16, 256} {
			name := fmt.Sprintf("%dx%s", proposers, sizeName(size))
			b.Run(name, func(b *testing.B) {
				f := appendFigures(appendTurns(b, size, proposers))
				f.report(b)
				t.add(name, f)
			})
		}
	}
	t.print()
}

func appendTurns(b *testing.B, size, proposers int) []turn {
	dir := benchDir(b)
	floor, growing := openBare(b, dir, true), openBare(b, dir, false)
	l := load{data: benchData(size), proposers: proposers}
	logs := 0
	var turns []turn
	for b.Loop() {
		begin := time.Now()
		for n := 0; n < benchTurns && time.Since(begin) < benchTurnsTime; n++ {
			if l.log == nil || l.log.Stats().Bytes > benchFileBytesMax {
				if l.log != nil {
					_ = l.log.Close()
					_ = os.RemoveAll(l.log.options.Dir)
				}
				logs++
				l.log = mustOpen(b, Options{FS: vfs.OS{}, Dir: filepath.Join(dir, fmt.Sprint(logs)), Identity: testIdentity()})
			}
			s := l.run(b)
			turns = append(turns, turn{s, l.again(b, s.sizes), floor.run(b, s.sizes), growing.run(b, s.sizes)})
		}
	}
	return turns
}

func appendFigures(turns []turn) *figures {
	const load, log, floor, growing = 0, 1, 2, 3 // as appendTurns has them
	f := &figures{}
	f.add("appends/s", medianOf(turns, load, perSecond))
	f.add("MB/s", medianOf(turns, load, megabytes))
	f.add("entries/group", medianOf(turns, load, perGroup))
	f.add("wait-p50-µs", medianOf(turns, load, waitP50))
	f.add("wait-p99-µs", medianOf(turns, load, waitP99))
	f.add("group-p50-µs", medianOf(turns, log, groupP50))
	f.add("group-p99-µs", medianOf(turns, log, groupP99))
	f.add("floor-p50-µs", medianOf(turns, floor, groupP50))
	f.add("floor-p99-µs", medianOf(turns, floor, groupP99))
	f.add("growing-p50-µs", medianOf(turns, growing, groupP50))
	f.add("p50/growing", ratioOf(turns, log, growing, groupP50))
	f.add("p50/floor", ratioOf(turns, log, floor, groupP50))
	f.add("p99/floor", ratioOf(turns, log, floor, groupP99))
	return f
}

// BenchmarkAppendReader measures, in turns, group commit alone and group commit while a reader streams an old
// part of the log as fast as it can, as a node does that catches up. It also measures how the same reads,
// without a log, slow down bare writes.
func BenchmarkAppendReader(b *testing.B) {
	const proposers, size = 16, 1 << 10
	dir := benchDir(b)
	l := load{data: benchData(size), proposers: proposers}
	l.log = mustOpen(b, Options{FS: vfs.OS{}, Dir: filepath.Join(dir, "log"), Identity: testIdentity()})
	ctx, cancel := context.WithCancel(b.Context())
	var ahead sync.WaitGroup
	ahead.Go(func() { _ = l.log.Run(ctx) })
	b.Cleanup(ahead.Wait)
	b.Cleanup(cancel)
	old := appendOld(b, l.log)
	dropPages(b, l.log)
	bare := openBare(b, dir, true)
	var turns []turn
	var rates []float64
	for b.Loop() {
		for range benchTurns {
			quiet := l.run(b)
			stop, rate := make(chan struct{}), make(chan float64)
			go func() { rate <- streamOld(b, l.log, old, stop) }()
			beside := l.run(b)
			close(stop)
			rates = append(rates, <-rate)
			bareAlone := bare.run(b, quiet.sizes)
			stop = make(chan struct{})
			go func() { rate <- readBare(b, l.log, rates[len(rates)-1], stop) }()
			turns = append(turns, turn{quiet, beside, bareAlone, bare.run(b, quiet.sizes)})
			close(stop)
			<-rate
		}
	}
	f := readerFigures(turns)
	f.add("reader-MB/s", median(rates))
	stats := l.log.Stats()
	f.add("prefetched-%", 100*float64(stats.PrefetchEntries)/float64(stats.PrefetchEntries+stats.MissedEntries))
	f.report(b)
	t := benchTable{title: "commits as their proposers see them: alone, and beside a reader of the old log; bare: pwrite+fdatasync and bare reads of the same rate"}
	t.add(fmt.Sprintf("%dx%s", proposers, sizeName(size)), f)
	t.print()
}

func readerFigures(turns []turn) *figures {
	const alone, beside, bareAlone, bareBeside = 0, 1, 2, 3 // as BenchmarkAppendReader has them
	f := &figures{}
	f.add("alone-appends/s", medianOf(turns, alone, perSecond))
	f.add("alone-p50-µs", medianOf(turns, alone, waitP50))
	f.add("alone-p99-µs", medianOf(turns, alone, waitP99))
	f.add("beside-appends/s", medianOf(turns, beside, perSecond))
	f.add("beside-p50-µs", medianOf(turns, beside, waitP50))
	f.add("beside-p99-µs", medianOf(turns, beside, waitP99))
	f.add("p50/alone", ratioOf(turns, beside, alone, waitP50))
	f.add("p99/alone", ratioOf(turns, beside, alone, waitP99))
	f.add("bare-p50/alone", ratioOf(turns, bareBeside, bareAlone, groupP50))
	f.add("bare-p99/alone", ratioOf(turns, bareBeside, bareAlone, groupP99))
	return f
}

// readBare reads the files of the log in pieces of readBytes, at most at the given rate in megabytes per
// second.
func readBare(b *testing.B, l *Log, rate float64, stop <-chan struct{}) float64 {
	names, err := filepath.Glob(filepath.Join(l.options.Dir, "quorate.*"))
	if err != nil {
		b.Error(err)
	}
	buf, read, begin := make([]byte, chunkBytes), 0, time.Now()
	for {
		for _, name := range names {
			f, err := os.Open(name)
			if err != nil {
				b.Error(err)
				<-stop
				return 0
			}
			for at := int64(0); ; at += int64(len(buf)) {
				n, err := f.ReadAt(buf, at)
				_ = unix.Fadvise(int(f.Fd()), at, int64(n), unix.FADV_DONTNEED)
				read += n
				due := time.Duration(float64(read) / rate * 1e3)
				select {
				case <-stop:
					_ = f.Close()
					return float64(read) / 1e6 / time.Since(begin).Seconds()
				case <-time.After(due - time.Since(begin)):
				}
				if err != nil {
					break
				}
			}
			_ = f.Close()
		}
	}
}

// appendOld writes oldBytes and returns the last index.
func appendOld(b *testing.B, l *Log) uint64 {
	data := benchData(16 << 10)
	group := make([]Entry, 128) // 2 MiB
	for l.Stats().Bytes < oldBytes {
		next := l.LastIndex() + 1
		for i := range group {
			group[i] = Entry{Index: next + uint64(i), Term: 1, Data: data[i%len(data)]}
		}
		mustAppend(b, l, nil, group...)
	}
	return l.LastIndex()
}

// dropPages removes the log's files from the page cache, as an hour of other work would.
func dropPages(b *testing.B, l *Log) {
	names, err := filepath.Glob(filepath.Join(l.options.Dir, "quorate.*"))
	if err != nil {
		b.Error(err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
			_ = f.Close()
		}
		if err != nil {
			b.Error(err)
		}
	}
}

// streamOld reads the entries up to last, again from the start if there is time left, and returns the megabytes
// per second.
func streamOld(b *testing.B, l *Log, last uint64, stop <-chan struct{}) float64 {
	r := l.NewReader()
	defer r.Close()
	read, begin := 0, time.Now()
	for lo := uint64(1); ; {
		select {
		case <-stop:
			return float64(read) / 1e6 / time.Since(begin).Seconds()
		default:
		}
		if lo > last {
			dropPages(b, l)
			lo = 1
		}
		entries, err := r.Entries(lo, last+1, readBytes)
		if err != nil {
			b.Error(err)
			<-stop
			return 0
		}
		for i := range entries {
			read += len(entries[i].Data)
		}
		lo += uint64(len(entries))
	}
}

// BenchmarkAppendMemory is the cost of Append without a disk: 64 transactions
// of 1 KiB per call.
func BenchmarkAppendMemory(b *testing.B) {
	l := mustOpen(b, Options{FS: nullFS{vfs.NewMem()}, Dir: testDir, Identity: testIdentity(), SegmentBytesMax: 1 << 30})
	group := make([]Entry, 64)
	for i := range group {
		group[i] = transactions(0, 1, 1, uint64(i+1), 1, 800)
	}
	index := uint64(0)
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if l.tail().end > 1<<29 {
			index = 0 // cut everything off, so that the index in memory stays small
		}
		for i := range group {
			index++
			group[i].Index = index
		}
		if err := l.Append(group, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// nullFS forgets what is written to files that are opened with OpenReadWrite, as segments are when they have their
// names.
type nullFS struct{ vfs.FS }

type nullFile struct{ vfs.File }

func (n nullFS) OpenReadWrite(name string) (vfs.File, error) {
	f, err := n.FS.OpenReadWrite(name)
	return nullFile{f}, err
}

func (n nullFile) WriteAt(p []byte, offset int64) (int, error) {
	return len(p), nil
}

// BenchmarkOpen reads a log of 64 MiB in two segments.
func BenchmarkOpen(b *testing.B) {
	o := Options{FS: vfs.OS{}, Dir: benchDir(b), Identity: testIdentity(), SegmentBytesMax: 32 << 20}
	l := mustOpen(b, o)
	for index := uint64(1); l.Stats().Bytes < 63<<20; {
		var group []Entry
		for range 256 {
			group = append(group, transactions(index, 1, 1, index, 1, 4000-entry.HeaderBytes))
			index++
		}
		mustAppend(b, l, nil, group...)
	}
	_ = l.Close()
	b.SetBytes(64 << 20)
	for b.Loop() {
		l, err := Open(o)
		if err != nil {
			b.Fatal(err)
		}
		_ = l.Close()
	}
}
