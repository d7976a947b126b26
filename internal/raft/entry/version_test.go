package entry

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEntriesOfPreviousVersion: the golden files were written by an agent of protocol version 1,
// which knows these four kinds. This version reads them, and writes the same bytes.
func TestEntriesOfPreviousVersion(t *testing.T) {
	epoch := Epoch{
		Term: 7, Primary: "a", ServerUUID: [16]byte{1, 2, 3}, ServerVersion: "8.0.30", FormatDescription: []byte("format"),
	}
	staged := Staged{
		ID: StageID{Term: 7, Number: 3}, Bytes: 1 << 24, CRC: 0xc0ffee, GTIDEvent: []byte("gtid"), EndEvent: []byte("xid"), Rows: true,
	}
	transactions := Header{Kind: KindTransactions, Count: 2, Term: 7, Number: 1}
	rotate := Header{Kind: KindRotate, Term: 7, Number: 2}
	for name, c := range map[string]struct {
		data []byte
		want Header
	}{
		"epoch":        {EncodeEpoch(epoch), Header{Kind: KindEpoch, Term: 7}},
		"transactions": {append(AppendHeader(nil, transactions), "events"...), transactions},
		"rotate":       {append(AppendHeader(nil, rotate), "format"...), rotate},
		"staged":       {EncodeStaged(staged), Header{Kind: KindStaged, Count: 1, Term: 7, Number: 3}},
	} {
		golden, err := os.ReadFile(filepath.Join("testdata", name+"-v1.golden"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.data, golden) {
			t.Errorf("%s: wrote\n% x\nwant\n% x", name, c.data, golden)
		}
		h, body, err := Parse(golden)
		if err != nil || h != c.want {
			t.Errorf("%s: header %+v, %v", name, h, err)
			continue
		}
		switch h.Kind {
		case KindEpoch:
			if got, err := ParseEpoch(h, body); err != nil || cmp.Diff(epoch, got) != "" {
				t.Errorf("epoch %+v, %v", got, err)
			}
		case KindStaged:
			if got, err := ParseStaged(h, body); err != nil || cmp.Diff(staged, got) != "" {
				t.Errorf("staged %+v, %v", got, err)
			}
		}
	}
}
