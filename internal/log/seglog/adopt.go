package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

const (
	// paddingMagic begins the body of the event that fills a reserved region.
	paddingMagic    = "QPAD"
	paddingBytesMin = binlog.HeaderBytes + len(paddingMagic) + binlog.ChecksumBytes
)

// stageSpan is the stage that a segment holds: its bytes are the end of the file.
type stageSpan struct {
	id entry.StageID
	// at is where the bytes begin: the end of the reserved region.
	at, bytes int64
	crc       uint32
}

// naming is the decoded content of a naming entry.
type naming struct {
	stageSpan
	gtid  gtid.GTID
	event []byte
}

// namingOf decodes an entry that names a stage. Any other entry, or a naming entry that makes no sense, is
// stored like an ordinary one.
func namingOf(e *Entry) (naming, bool) {
	if e.Type != raftNormal {
		return naming{}, false
	}
	staged, ok := entry.StagedIn(e.Data)
	if !ok || staged.Bytes > math.MaxInt64/2 {
		return naming{}, false
	}
	event, err := binlog.ParseEvent(staged.GTIDEvent)
	if err != nil || binlog.VerifyChecksum(event) != nil {
		return naming{}, false
	}
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return naming{}, false
	}
	return naming{stageSpan{id: staged.ID, bytes: int64(staged.Bytes), crc: staged.CRC}, info.GTID, event}, true
}

// claim makes sure, before anything is done, that the stages which entries name are here, and that they stay
// until release.
func (l *Log) claim(entries []Entry) error {
	for i := range entries {
		n, ok := namingOf(&entries[i])
		if !ok {
			continue
		}
		invariant.Check(entries[i].Index > 1, "log-order", "the log begins with stage %v and no epoch", n.id)
		l.stagesMu.Lock()
		s := l.stages[n.id]
		fits := s != nil && s.complete && s.bytes == n.bytes && s.crc == n.crc
		if fits {
			s.claimed = true
			l.writer.claims = append(l.writer.claims, s)
		}
		l.stagesMu.Unlock()
		if held := l.stagedSegment(n.id); !fits && held != nil && held.first >= entries[0].Index {
			// The truncation before this append will make it a stage again.
			fits = held.stage.bytes == n.bytes && held.stage.crc == n.crc
		}
		if !fits {
			return fmt.Errorf("append entry %d: %w: %v of %d bytes", entries[i].Index, ErrNoStage, n.id, n.bytes)
		}
	}
	return nil
}

// release allows stages to be dropped that no call of Append needs any more.
func (l *Log) release() {
	if len(l.writer.claims) == 0 {
		return
	}
	l.stagesMu.Lock()
	defer l.stagesMu.Unlock()
	for _, s := range l.writer.claims {
		s.claimed = false
	}
	l.writer.claims = nil
}

// adopt makes the stage that e names the log's newest segment: it fills the region that is reserved before the
// bytes, and renames the file.
func (l *Log) adopt(e *Entry, n naming) error {
	if err := l.seal(); err != nil {
		return err
	}
	l.stagesMu.Lock()
	s := l.stages[n.id]
	l.stagesMu.Unlock()
	if s == nil || !s.complete || s.bytes != n.bytes || s.crc != n.crc {
		return fmt.Errorf("%w: it was named twice, or is another one by now", ErrNoStage)
	}
	h := l.nextHeader(l.formatInForce())
	h.staged = true
	n.at = s.region
	put := l.fillStage
	head, chain := stagedHead(h, e, &n.stageSpan)
	if head == nil {
		n.at = align(h.bytes + recordBytes(len(e.Data)) + int64(paddingBytesMin))
		put = l.copyStage
		head, chain = stagedHead(h, e, &n.stageSpan)
	}
	if err := put(s, head, segmentName(h.first)); err != nil {
		return err
	}
	l.writer.gtids.Add(n.gtid)
	segment := &segment{segmentHeader: h, end: n.at + n.bytes, chain: chain, stage: &n.stageSpan}
	segment.times.add(n.event)
	segment.index.add(place{offset: h.bytes, term: e.Term, chain: h.seed})
	l.show(segment)
	l.saveIndexes(false)
	// This comes last, so that HasStage never misses the stage.
	l.stagesMu.Lock()
	delete(l.stages, n.id)
	l.setWhole(n.id, false)
	l.stagesMu.Unlock()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Appends++
	l.stats.Entries++
	l.stats.Bytes += uint64(segment.end)
	l.cache.add([]Entry{*e})
	return nil
}

// stagedHead returns what stands before a stage's bytes in its segment, and the chain value of its record; nil
// if that does not fit before span.at.
func stagedHead(h *segmentHeader, e *Entry, span *stageSpan) (head []byte, chain uint32) {
	head = h.append(nil)
	start := len(head)
	r := record{
		raftType: e.Type, index: e.Index, term: e.Term, durable: uint64(span.at + span.bytes), seed: h.seed,
		dataBytes: uint32(len(e.Data)), inlineBytes: uint32(len(e.Data)), staged: true,
		dataCRC: crc32.Checksum(e.Data, castagnoli()),
	}
	head = r.appendHead(head, h.bytes, h.seed)
	head = append(head, e.Data...)
	head = binary.LittleEndian.AppendUint32(head, crc32.ChecksumIEEE(head[start:]))
	room := span.at - int64(len(head))
	if room < int64(paddingBytesMin) {
		return nil, 0
	}
	padding := make([]byte, room-binlog.HeaderBytes-binlog.ChecksumBytes)
	copy(padding, paddingMagic)
	return append(head, appendEvent(nil, binlog.TypeIgnorable, binlog.FlagIgnorable, padding, int64(len(head)))...), r.chain
}

// fillStage writes head before the stage's bytes, durably, and gives the file the segment's name. ErrFull: only
// the stage's reserved region may have changed.
func (l *Log) fillStage(s *Stage, head []byte, name string) error {
	path := filepath.Join(l.options.Dir, s.name)
	f, err := l.options.FS.OpenReadWrite(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(head, 0)
	if err = full(err); err == nil {
		err = l.sync(f.Sync)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return l.nameStage(s, s.name, name, s.region)
}

// nameStage gives the segment's name to the file from, in which the stage's bytes begin at offset at.
func (l *Log) nameStage(s *Stage, from, name string, at int64) error {
	o := &l.options
	l.stagesMu.Lock()
	err := full(o.FS.Rename(filepath.Join(o.Dir, from), filepath.Join(o.Dir, name)))
	if err == nil {
		s.name, s.region = name, at
	}
	l.stagesMu.Unlock()
	if err != nil {
		return err
	}
	return l.sync(func() error { return o.FS.SyncDir(o.Dir) })
}

// copyStage copies the stage into another file and makes that the segment, because the head is longer than the
// stage's region. ErrFull: the stage is unchanged.
func (l *Log) copyStage(s *Stage, head []byte, name string) error {
	o := &l.options
	temporary := filepath.Join(o.Dir, segmentTemporary)
	old := s.name
	err := l.writeCopy(s, head, temporary)
	if err == nil {
		err = l.nameStage(s, segmentTemporary, name, int64(len(head)))
	}
	if errors.Is(err, ErrFull) {
		return removeTemporary(o.FS, temporary, err)
	}
	if err == nil {
		err = o.FS.Remove(filepath.Join(o.Dir, old))
	}
	return err
}

func (l *Log) writeCopy(s *Stage, head []byte, temporary string) error {
	from, err := l.options.FS.Open(filepath.Join(l.options.Dir, s.name))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := l.options.FS.Create(temporary)
	if err != nil {
		return full(err)
	}
	_, err = to.WriteAt(head, 0)
	err = full(err)
	b := make([]byte, min(windowBytes, s.bytes))
	for at := int64(0); err == nil && at < s.bytes; at += int64(len(b)) {
		b = b[:min(int64(len(b)), s.bytes-at)]
		if n, readErr := from.ReadAt(b, s.region+at); n < len(b) {
			err = fmt.Errorf("read stage: %w", readErr)
			break
		}
		_, err = to.WriteAt(b, int64(len(head))+at)
		err = full(err)
	}
	if err == nil {
		err = l.sync(to.Sync)
	}
	if closeErr := to.Close(); err == nil {
		err = closeErr
	}
	return err
}

// unadopt makes the segment s a stage again, because its entry is removed from the log. The next leader may
// bring the entry back, and relies on the stage being here.
func (l *Log) unadopt(s *segment) error {
	o, span := &l.options, s.stage
	l.stagesMu.Lock()
	defer l.stagesMu.Unlock()
	if l.stages[span.id] != nil {
		return o.FS.Remove(filepath.Join(o.Dir, s.name()))
	}
	name := stageName(span.id)
	if err := o.FS.Rename(filepath.Join(o.Dir, s.name()), filepath.Join(o.Dir, name)); errors.Is(full(err), ErrFull) {
		// No room for another name: the stage is fetched again if it is needed.
		return o.FS.Remove(filepath.Join(o.Dir, s.name()))
	} else if err != nil {
		return err
	}
	again := &Stage{
		log: l, id: span.id, name: name, region: span.at, bytes: span.bytes, crc: span.crc,
		complete: true, claimed: true,
	}
	l.stages[span.id] = again
	l.writer.claims = append(l.writer.claims, again)
	l.setWhole(span.id, true)
	return nil
}

// scanStaged verifies the rest of a staged segment, without holding it in memory. r is the segment's record.
func (h *segmentHeader) scanStaged(w *window, s *scan, r *record) error {
	b, err := w.bytes(s.end, r.bytes())
	if err != nil {
		return err
	}
	inline, _, err := r.parts(b)
	if err != nil {
		return err
	}
	data := append([]byte(nil), inline...)
	n, ok := namingOf(&Entry{Type: r.raftType, Data: data})
	n.at = int64(r.durable) - n.bytes
	if !ok || s.index.count > 0 || int64(r.durable) != w.size || n.at < s.end+r.bytes() {
		return fmt.Errorf("%w: record of a stage of %d bytes, up to %d of %d", errDamage, n.bytes, r.durable, w.size)
	}
	if err := scanPadding(w, s.end+r.bytes(), n.at); err != nil {
		return err
	}
	crc := uint32(0)
	for at := n.at; at < w.size; {
		b, err := w.bytes(at, min(windowBytes, w.size-at))
		if err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli(), b)
		at += int64(len(b))
	}
	if crc != n.crc {
		return fmt.Errorf("%w: wrong checksum of the stage's bytes from %d on", errDamage, n.at)
	}
	if s.gtids != nil {
		s.gtids.Add(n.gtid)
	}
	s.times.add(n.event)
	s.index.add(place{offset: s.end, term: r.term, chain: s.chain})
	s.chain, s.term, s.end, s.durable, s.stage = r.chain, r.term, w.size, w.size, &n.stageSpan
	return nil
}

// scanPadding verifies the event that fills the reserved region from offset to end.
func scanPadding(w *window, offset, end int64) error {
	if end-offset < int64(paddingBytesMin) || end-offset > previousGTIDsBytesMax+recordBytes(EntryBytesMax) {
		return fmt.Errorf("%w: %d bytes of padding", errDamage, end-offset)
	}
	event, err := w.bytes(offset, end-offset)
	if err != nil {
		return err
	}
	e := binlog.Event(event)
	if e.Type() != binlog.TypeIgnorable || int64(e.Length()) != end-offset ||
		string(event[binlog.HeaderBytes:][:len(paddingMagic)]) != paddingMagic || binlog.VerifyChecksum(e) != nil {
		return fmt.Errorf("%w: no padding up to %d", errDamage, end)
	}
	return nil
}
