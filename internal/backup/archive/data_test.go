package archive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/replay"
)

// dataTar is a backup's tar with these files; a name without content is a directory.
func dataTar(t testing.TB, files ...[2]string) []byte {
	t.Helper()
	start, _ := json.Marshal(Start{Format: Format, Cluster: "c", Begin: replay.LogBegin{First: 3}}) // it cannot fail
	end, _ := json.Marshal(End{Index: 9})
	files = append([][2]string{{StartFile, string(start)}}, append(files, [2]string{EndFile, string(end)})...)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f[0], Typeflag: tar.TypeReg, Size: int64(len(f[1])), Mode: 0o640}
		if f[1] == "" {
			h.Typeflag = tar.TypeDir
		}
		err := w.WriteHeader(h)
		if err == nil {
			_, err = io.WriteString(w, f[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// drain reads a tar to its end.
func drain(b []byte) (*Data, error) {
	d := NewData(bytes.NewReader(b))
	for {
		if _, err := d.Next(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return d, err
		}
	}
}

func TestData(t *testing.T) {
	b := dataTar(t, [2]string{"data/shop/", ""}, [2]string{"data/shop/t.ibd", "rows"}, [2]string{"data/ibdata1", "system"})
	d, err := drain(b)
	if err != nil {
		t.Fatal(err)
	}
	start, err := d.Start()
	if err != nil || start.Begin.First != 3 || d.End().Index != 9 {
		t.Errorf("start %+v, end %+v, %v", start, d.End(), err)
	}
	want := []File{
		{"shop/t.ibd", 4, "bc51e9e65d79e1c90ba544ab2eae1044ccdf8c1af7a559ba375cba4276f7d99e"},
		{"ibdata1", 6, "bbc5e661e106c6dcd8dc6dd186454c2fcba3c710fb4d8e71a60c93eaf077f073"},
	}
	if diff := cmp.Diff(want, d.Files()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m := Manifest{Start: start, End: d.End(), Files: want}
	if err := d.Check(m); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Manifest){"mark": func(m *Manifest) { m.MarkIndex++ }, "end": func(m *Manifest) { m.End.Index-- }} {
		bad := m
		if change(&bad); !errors.Is(d.Check(bad), ErrData) {
			t.Errorf("the %s of the manifest is another", what)
		}
	}
	for what, files := range map[string][]File{"one less": want[:1], "one more": append(want[:2:2], File{}), "another": {want[1], want[0]}} {
		m.Files = files
		if err := d.Check(m); !errors.Is(err, ErrData) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDataDamaged: a copy that is cut off is never taken for a whole one, and nothing is written
// outside of the data directory.
func TestDataDamaged(t *testing.T) {
	b := dataTar(t, [2]string{"data/t", "rows"})
	for at := 0; at < len(b)-3*512; at += 7 { // END's block, and the tar's own end
		if _, err := drain(b[:at]); err == nil {
			t.Fatalf("cut at %d, and read", at)
		}
	}
	for _, f := range [][2]string{{"../etc/passwd", "x"}, {"etc/passwd", "x"}, {"data/", ""}, {"other.json", "x"}} {
		if _, err := drain(dataTar(t, f)); !errors.Is(err, ErrData) {
			t.Errorf("%s: %v", f[0], err)
		}
	}
}
