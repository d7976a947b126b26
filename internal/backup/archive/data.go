package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// jsonBytesMax bounds the JSON files of a backup's tar.
const jsonBytesMax = 64 << 20

// Data reads the tar of a full backup's data. One goroutine uses it.
type Data struct {
	tar   *tar.Reader
	file  *DataFile
	start *Start
	end   *End
	files []File
}

// NewData reads src.
func NewData(src io.Reader) *Data { return &Data{tar: tar.NewReader(src)} }

// DataFile is a file or directory of the data.
type DataFile struct {
	// Name is the path below the data directory.
	Name  string
	Dir   bool
	bytes int64
	r     io.Reader
	sum   hash.Hash
}

// Read implements io.Reader.
func (f *DataFile) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	_, _ = f.sum.Write(p[:n]) // never fails
	return n, err
}

// Start returns the description of the backup. It returns an error if that is not the first
// file.
func (d *Data) Start() (Start, error) {
	if d.start != nil {
		return *d.start, nil
	}
	h, err := d.tar.Next()
	if err == nil && h.Name != StartFile {
		err = fmt.Errorf("%s comes first", printable(h.Name))
	}
	var s Start
	if err == nil {
		err = json.NewDecoder(io.LimitReader(d.tar, jsonBytesMax)).Decode(&s)
	}
	if err == nil && s.Format > Format {
		err = fmt.Errorf("it has format %d, and this quorate knows %d: use a newer one", s.Format, Format)
	}
	if err != nil {
		return s, fmt.Errorf("read %s of the copy: %w", StartFile, cutOff(err))
	}
	d.start = &s
	return s, nil
}

// Next returns the next file of the data, which is valid until the next call, and io.EOF after the
// END. A copy that ends without its END is an error.
func (d *Data) Next() (*DataFile, error) {
	if _, err := d.Start(); err != nil {
		return nil, err
	}
	if err := d.close(); err != nil {
		return nil, err
	}
	h, err := d.tar.Next()
	if err != nil {
		return nil, fmt.Errorf("read the copy: %w", cutOff(err))
	}
	if h.Name == EndFile {
		d.end = &End{}
		if err := json.NewDecoder(io.LimitReader(d.tar, jsonBytesMax)).Decode(d.end); err != nil {
			return nil, fmt.Errorf("read %s of the copy: %w", EndFile, cutOff(err))
		}
		if _, err := d.tar.Next(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: something is behind %s: %w", ErrData, EndFile, err)
		}
		return nil, io.EOF
	}
	name, below := strings.CutPrefix(h.Name, DataDir)
	f := &DataFile{Name: strings.TrimSuffix(name, "/"), Dir: h.Typeflag == tar.TypeDir, bytes: h.Size, r: d.tar, sum: sha256.New()}
	if !below || f.Name == "" || !f.Dir && h.Typeflag != tar.TypeReg {
		return nil, fmt.Errorf("%w: %s of type %q", ErrData, printable(h.Name), h.Typeflag)
	}
	d.file = f
	return f, nil
}

// ErrData is returned for a copy of the data that is damaged.
var ErrData = errors.New("copy of the data is damaged")

// cutOff makes ErrData of the end of a copy that is cut off.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrData, io.ErrUnexpectedEOF)
	}
	return err
}

// close reads the rest of the present file, and notes its length and sum.
func (d *Data) close() error {
	f := d.file
	if f == nil || f.Dir {
		d.file = nil
		return nil
	}
	if _, err := io.Copy(io.Discard, f); err != nil {
		return fmt.Errorf("read %s of the copy: %w", printable(f.Name), cutOff(err))
	}
	d.files = append(d.files, File{Name: f.Name, Bytes: f.bytes, SHA256: hex.EncodeToString(f.sum.Sum(nil))})
	d.file = nil
	return nil
}

// End returns how the copy ended. It may be called only after Next has returned io.EOF.
func (d *Data) End() End { return *d.end }

// Files returns the files that were read; all of them after Next has returned io.EOF.
func (d *Data) Files() []File { return d.files }

// Check compares what was read with the backup's manifest, which is an object of its own.
func (d *Data) Check(m Manifest) error {
	want := m.Files
	if d.end == nil {
		return fmt.Errorf("%w: it was not read to its end", ErrData)
	}
	said, err1 := json.Marshal(m.Start)
	is, err2 := json.Marshal(d.start)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("compare the copy with its manifest: %w", err)
	}
	if !bytes.Equal(said, is) || d.end.Index != m.End.Index {
		return fmt.Errorf("%w: its manifest says other things than it does itself", ErrData)
	}
	for i, f := range want {
		if i >= len(d.files) || d.files[i] != f {
			return fmt.Errorf("%w: %s is not as the manifest has it", ErrData, printable(f.Name))
		}
	}
	if len(d.files) > len(want) {
		return fmt.Errorf("%w: %s is not in the manifest", ErrData, printable(d.files[len(want)].Name))
	}
	return nil
}

func printable(name string) string {
	return fmt.Sprintf("%.200q", name)
}
