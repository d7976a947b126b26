package archive

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/frame"
)

// ErrCorrupt is returned for bytes that are no piece, or only a part of one.
var ErrCorrupt = errors.New("piece of the log is damaged")

// The frames of a piece. Part of the format.
const (
	frameHead  = 1 // JSON: Head
	frameEntry = 2 // an entry
	frameStage = 3 // the next bytes of the staged transaction that the last entry names
	frameEnd   = 4 // u64 index and u64 term of the last entry
	framePoint = 5 // u64 commit index: all entries up to it were sent
)

const (
	// entryHeadBytes is the length of the fields in front of an entry's data. Part of the
	// format.
	entryHeadBytes = 24
	// entryBytesMax bounds an entry's data, with the same limit as between agents.
	entryBytesMax = 64 << 20
	// stageBytesMax bounds the bytes of a stage in one frame.
	stageBytesMax = 1 << 20
	headBytesMax  = 64 << 10
	endBytes      = 16
	pointBytes    = 8
)

// format is the format of a piece's frames.
var format = frame.Format{Magic: 0x5051, Version: 1} // "QP"

// Head says which cluster's log a piece is from.
type Head struct {
	Cluster   string `json:"cluster"`
	ClusterID string `json:"cluster_id"`
	// Generation is the generation of the cluster's history: see Start.
	Generation uint64 `json:"generation"`
	// Node is the node whose agent gave the log.
	Node string `json:"node"`
	// First is the index of its first entry.
	First uint64 `json:"first"`
}

// Writer writes a piece. One goroutine uses it.
type Writer struct {
	w    io.Writer
	buf  []byte
	last seglog.Entry
}

// NewWriter begins a piece.
func NewWriter(w io.Writer, h Head) (*Writer, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the head of a piece: %w", err)
	}
	pw := &Writer{w: w, last: seglog.Entry{Index: h.First - 1}}
	return pw, pw.send(frameHead, head)
}

func (w *Writer) send(kind uint8, parts ...[]byte) error {
	w.buf = append(w.buf[:0], make([]byte, frame.HeaderBytes)...)
	for _, p := range parts {
		w.buf = append(w.buf, p...)
	}
	format.Fill(w.buf, kind)
	if _, err := w.w.Write(w.buf); err != nil {
		return fmt.Errorf("write a piece of the log: %w", err)
	}
	return nil
}

// Entry writes the next entry. If the entry names a staged transaction, stage reads its bytes, else
// stage is nil.
func (w *Writer) Entry(e seglog.Entry, stage io.Reader) error {
	le := binary.LittleEndian
	if e.Index != w.last.Index+1 || e.Term < w.last.Term || len(e.Data) > entryBytesMax {
		return fmt.Errorf("write a piece of the log: entry %d of term %d with %d bytes behind entry %d of term %d",
			e.Index, e.Term, len(e.Data), w.last.Index, w.last.Term)
	}
	head := le.AppendUint64(make([]byte, 0, entryHeadBytes), e.Index)
	head = le.AppendUint64(head, e.Term)
	head = append(le.AppendUint32(head, uint32(len(e.Data))), e.Type, 0, 0, 0)
	if err := w.send(frameEntry, head, e.Data); err != nil {
		return err
	}
	w.last = seglog.Entry{Index: e.Index, Term: e.Term}
	s, staged := e.Staged()
	if !staged {
		return nil
	}
	left := int64(s.Bytes)
	for chunk := make([]byte, min(left, stageBytesMax)); left > 0; {
		n := min(left, int64(len(chunk)))
		if _, err := io.ReadFull(stage, chunk[:n]); err != nil {
			return fmt.Errorf("read stage %s: %w", s.ID, err)
		}
		if err := w.send(frameStage, chunk[:n]); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// Point writes that all entries up to commit were written.
func (w *Writer) Point(commit uint64) error {
	return w.send(framePoint, binary.LittleEndian.AppendUint64(nil, commit))
}

// End ends the piece. A piece needs at least one entry.
func (w *Writer) End() error {
	return w.send(frameEnd, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, w.last.Index), w.last.Term))
}

// Item is an item of a piece: an entry, or a point.
type Item struct {
	// Entry has the index 0 if the item is a point.
	Entry seglog.Entry
	// Stage has the bytes of the staged transaction that the entry names; nil if it names none.
	// It is valid until the next call of Next, which skips the bytes that were not read.
	Stage io.Reader
	// Commit is set for a point: all entries up to it were read.
	Commit uint64
}

// Reader reads a piece. One goroutine uses it.
type Reader struct {
	frames *frame.Reader
	head   Head
	last   seglog.Entry
	stage  *stageReader
	ended  bool
}

// NewReader reads the head of a piece.
func NewReader(src io.Reader) (*Reader, error) {
	r := &Reader{frames: frame.NewReader(src, format, ErrCorrupt, room)}
	kind, payload, err := r.frames.Next()
	if err == nil && kind != frameHead {
		err = fmt.Errorf("%w: it begins with a frame of type %d", ErrCorrupt, kind)
	}
	if err == nil {
		err = json.Unmarshal(payload, &r.head)
	}
	if err == nil && r.head.First == 0 {
		err = fmt.Errorf("%w: its first entry has the index 0", ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("read the head of a piece of the log: %w", noEnd(err))
	}
	r.last.Index = r.head.First - 1
	return r, nil
}

// room refuses a frame that is too long for its type.
func room(kind uint8, length uint32) ([]byte, error) {
	lengthMax := map[uint8]uint32{
		frameHead: headBytesMax, frameEntry: entryHeadBytes + entryBytesMax, frameStage: stageBytesMax, frameEnd: endBytes, framePoint: pointBytes,
	}[kind]
	if length > lengthMax {
		return nil, fmt.Errorf("%w: frame of type %d with %d bytes", ErrCorrupt, kind, length)
	}
	return nil, nil
}

// noEnd makes ErrCorrupt of the end of a piece that is cut off.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return err
}

// Head returns the head of the piece.
func (r *Reader) Head() Head { return r.head }

// Next returns the next item, and io.EOF after the END of the piece. It returns ErrCorrupt if
// the piece ends without an END.
func (r *Reader) Next() (Item, error) {
	if r.ended {
		return Item{}, io.EOF
	}
	if r.stage != nil {
		if _, err := io.Copy(io.Discard, r.stage); err != nil {
			return Item{}, err
		}
		r.stage = nil
	}
	kind, payload, err := r.frames.Next()
	if err != nil {
		return Item{}, fmt.Errorf("read behind entry %d: %w", r.last.Index, noEnd(err))
	}
	le := binary.LittleEndian
	switch {
	case kind == frameEntry && len(payload) >= entryHeadBytes:
		return r.entry(payload)
	case kind == framePoint && len(payload) == pointBytes:
		return Item{Commit: le.Uint64(payload)}, nil
	case kind == frameEnd && len(payload) == endBytes && le.Uint64(payload) == r.last.Index && le.Uint64(payload[8:]) == r.last.Term:
		r.ended = true
		return Item{}, io.EOF
	}
	return Item{}, fmt.Errorf("%w: frame of type %d with %d bytes behind entry %d", ErrCorrupt, kind, len(payload), r.last.Index)
}

func (r *Reader) entry(payload []byte) (Item, error) {
	le := binary.LittleEndian
	e := seglog.Entry{Index: le.Uint64(payload), Term: le.Uint64(payload[8:]), Type: payload[20]}
	if data := payload[entryHeadBytes:]; len(data) > 0 {
		e.Data = data
	}
	if e.Index != r.last.Index+1 || e.Term < r.last.Term || int(le.Uint32(payload[16:])) != len(e.Data) {
		return Item{}, fmt.Errorf("%w: entry %d of term %d behind entry %d of term %d", ErrCorrupt, e.Index, e.Term, r.last.Index, r.last.Term)
	}
	r.last = seglog.Entry{Index: e.Index, Term: e.Term}
	item := Item{Entry: e}
	if s, staged := e.Staged(); staged {
		r.stage = &stageReader{frames: r.frames, left: int64(s.Bytes)}
		item.Stage = r.stage
	}
	return item, nil
}

// stageReader reads the bytes of a staged transaction out of their frames.
type stageReader struct {
	frames *frame.Reader
	chunk  []byte
	left   int64
}

// Read implements io.Reader.
func (s *stageReader) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	if len(s.chunk) == 0 {
		kind, payload, err := s.frames.Next()
		if err != nil {
			return 0, fmt.Errorf("read a stage: %w", noEnd(err))
		}
		if kind != frameStage || len(payload) == 0 || int64(len(payload)) > s.left {
			return 0, fmt.Errorf("%w: frame of type %d with %d bytes in a stage that lacks %d", ErrCorrupt, kind, len(payload), s.left)
		}
		s.chunk = payload
	}
	n := copy(p, s.chunk)
	s.chunk, s.left = s.chunk[n:], s.left-int64(n)
	return n, nil
}
