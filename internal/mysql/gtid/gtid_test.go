package gtid

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
)

const (
	uuidA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	uuidB = "ffffffff-0000-1111-2222-333333333333"
)

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := ParseSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseUUID(t *testing.T) {
	u, err := ParseUUID(strings.ToUpper(uuidA))
	if err != nil || u.String() != uuidA || u[0] != 0x3e || u[15] != 0x62 {
		t.Errorf("got %v, %v", u, err)
	}
	for _, text := range []string{"", uuidA[1:], uuidA + "0", strings.ReplaceAll(uuidA, "-", ""),
		strings.Replace(uuidA, "3", "g", 1), strings.Replace(uuidA, "47-7", "4-77", 1)} {
		if _, err := ParseUUID(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("ParseUUID(%q): %v", text, err)
		}
	}
}

func TestParseGTID(t *testing.T) {
	for _, c := range []struct {
		text, want string
		err        error
	}{
		{uuidA + ":1", uuidA + ":1", nil},
		{strings.ToUpper(uuidA) + ":9223372036854775806", uuidA + ":9223372036854775806", nil},
		{" " + uuidA + " : Tag_1 :\n7 ", uuidA + ":tag_1:7", nil},
		{uuidA + ":_:007", uuidA + ":_:7", nil},
		{uuidA + ":" + strings.Repeat("t", 32) + ":7", uuidA + ":" + strings.Repeat("t", 32) + ":7", nil},
		{uuidA + ":" + strings.Repeat("t", 33) + ":7", "", ErrSyntax},
		{uuidA + ":9223372036854775807", "", ErrRange},
		{uuidA + ":99999999999999999999", "", ErrRange},
		{uuidA + ":0", "", ErrRange},
		{uuidA + ":-1", "", ErrSyntax},
		{uuidA + ":+1", "", ErrSyntax},
		{uuidA + ":1-2", "", ErrSyntax},
		{uuidA + ":1a:2", "", ErrSyntax},
		{uuidA + "::2", "", ErrSyntax},
		{uuidA + ":a:b:2", "", ErrSyntax},
		{uuidA, "", ErrSyntax},
		{"", "", ErrSyntax},
	} {
		g, err := ParseGTID(c.text)
		if !errors.Is(err, c.err) || err == nil && g.String() != c.want {
			t.Errorf("ParseGTID(%q) = %v, %v; want %q, %v", c.text, g, err, c.want, c.err)
		}
	}
}

func TestParseSet(t *testing.T) {
	for _, c := range []struct {
		text, want string
		err        error
	}{
		{"", "", nil},
		{" ,\n, ", "", nil},
		{uuidA + ":5:1-3:4:9-8", "", ErrRange},
		{uuidA + ":5:1-3:4", uuidA + ":1-5", nil},
		{uuidB + ":1,\n" + uuidA + ":3-4", uuidA + ":3-4," + uuidB + ":1", nil},
		{uuidA + ":b:2:1-3:A:7," + uuidA + ":1-3", uuidA + ":1-3:a:7:b:1-3", nil},
		{uuidA + ":1 - 3 : 5", uuidA + ":1-3:5", nil},
		{uuidA + ":1-9223372036854775806", uuidA + ":1-9223372036854775806", nil},
		{uuidA + ":1-9223372036854775807", "", ErrRange},
		{uuidA + ":0-1", "", ErrRange},
		{uuidA, "", ErrSyntax},
		{uuidA + ":", "", ErrSyntax},
		{uuidA + ":a", "", ErrSyntax},
		{uuidA + ":a:b:1", "", ErrSyntax},
		{uuidA + ":1-", "", ErrSyntax},
		{uuidA + ":1-2-3", "", ErrSyntax},
		{uuidA + ":1;" + uuidB + ":1", "", ErrSyntax},
	} {
		s, err := ParseSet(c.text)
		if !errors.Is(err, c.err) || err == nil && s.String() != c.want {
			t.Errorf("ParseSet(%q) = %v, %v; want %q, %v", c.text, s, err, c.want, c.err)
		}
	}
}

// TestAddInPlaceOfRemoved: after Subtract the place that Add remembers may be gone, or have
// another source.
func TestAddInPlaceOfRemoved(t *testing.T) {
	s := mustParse(t, uuidA+":1,"+uuidB+":1")
	a, _ := ParseGTID(uuidA + ":2")
	b, _ := ParseGTID(uuidB + ":2")
	if !s.Add(b) {
		t.Fatalf("Add(%v) says that it was there", b)
	}
	s.Subtract(mustParse(t, uuidA+":1"))
	if s.Add(b) {
		t.Errorf("Add(%v) says that it is new", b)
	}
	if !s.Add(a) {
		t.Errorf("Add(%v) says that it was there", a)
	}
	s.Subtract(s.Clone())
	if !s.IsEmpty() || !s.Add(a) || s.String() != uuidA+":2" {
		t.Errorf("got %v", s)
	}
}

func TestArgumentItself(t *testing.T) {
	const text = uuidA + ":1-3:7:t:2"
	s := mustParse(t, text)
	s.Union(s)
	if s.String() != text || !s.ContainsSet(s) || !Intersect(s, s).Equal(s) {
		t.Errorf("got %v", s)
	}
	s.Subtract(s)
	if !s.IsEmpty() || s.Intersects(s) {
		t.Errorf("%v is left", s)
	}
}

func TestNilIsEmpty(t *testing.T) {
	var none *Set
	s := mustParse(t, uuidA+":1")
	s.Union(none)
	s.Subtract(none)
	if s.Count() != 1 || none.Count() != 0 || !none.IsEmpty() || none.String() != "" || !s.ContainsSet(none) ||
		none.ContainsSet(s) || none.Intersects(s) || s.Intersects(none) || !none.Equal(&Set{}) ||
		!none.Clone().IsEmpty() || !Intersect(none, s).IsEmpty() || none.Contains(GTID{N: 1}) {
		t.Error("a nil set does not behave as an empty one")
	}
}

func TestRange(t *testing.T) {
	s := &Set{}
	for _, iv := range []Interval{{0, 0}, {0, 5}, {5, 4}, {1, MaxN + 1}, {math.MaxUint64, math.MaxUint64}} {
		if err := s.AddInterval(UUID{}, "", iv.Start, iv.End); !errors.Is(err, ErrRange) || !s.IsEmpty() {
			t.Errorf("AddInterval %v: %v, set %v", iv, err, s)
		}
	}
	for _, n := range []uint64{0, MaxN + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Add took number %d", n)
				}
			}()
			s.Add(GTID{N: n})
		}()
	}
	for i := range 3 {
		if err := s.AddInterval(UUID{byte(i)}, "", 1, MaxN); err != nil {
			t.Fatal(err)
		}
	}
	if s.Add(GTID{N: MaxN}) || s.Count() != math.MaxUint64 {
		t.Errorf("Count %d of three whole sources", s.Count())
	}
}

// TestEncoding has a set in both layouts, spelled out.
func TestEncoding(t *testing.T) {
	const u = "3e11fa4771ca11e19e33c80aa9429562"
	for _, c := range []struct{ text, want string }{
		{"", "0000000000000000"},
		{uuidA + ":1-5:7", "0100000000000000" + u + "0200000000000000" +
			"0100000000000000" + "0600000000000000" + "0700000000000000" + "0800000000000000"},
		{uuidA + ":7:ab:1", "0102000000000001" + u + "00" + "0100000000000000" + "0700000000000000" + "0800000000000000" +
			u + "04" + "6162" + "0100000000000000" + "0100000000000000" + "0200000000000000"},
	} {
		if got := hex.EncodeToString(mustParse(t, c.text).AppendBinary(nil)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

func TestDecodeMalformed(t *testing.T) {
	good := mustParse(t, uuidA+":7:ab:1").AppendBinary(nil)
	change := func(at int, to ...byte) []byte {
		return append(append(bytes.Clone(good[:at]), to...), good[at+len(to):]...)
	}
	for _, c := range []struct {
		name string
		b    []byte
		err  error
	}{
		{"trailing byte", append(bytes.Clone(good), 0), ErrEncoding},
		{"more sources", change(1, 3), ErrEncoding},
		{"fewer sources", change(1, 1), ErrEncoding},
		{"tag too long", change(24, 0xfe), ErrEncoding},
		{"wide tag length", change(24, 1), ErrEncoding},
		{"bad tag", change(len(good)-26, '-'), ErrSyntax},
		{"interval count", change(25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), ErrEncoding},
		{"start 0", change(33, 0), ErrRange},
		{"end 0", change(41, 0), ErrRange},
		{"empty interval", change(41, 7), ErrRange},
		{"end too high", change(48, 0x80), ErrRange},
	} {
		if s, err := DecodeBinary(c.b); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, %v; want %v", c.name, s, err, c.err)
		}
	}
}

// TestManyInAnyOrder: what a reader may send, 16 MiB, in the orders that are the worst for a sorted list. Before, each
// of them took minutes to hours.
func TestManyInAnyOrder(t *testing.T) {
	const most = 16 << 20
	intervals, sources := uint64(most/intervalBytes), uint64(most/(16+8+intervalBytes))
	encode := func(dst []byte, u UUID, numbers ...uint64) []byte {
		dst = append(dst, u[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(numbers)))
		for _, n := range numbers {
			dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, n), n+1)
		}
		return dst
	}
	descending := make([]uint64, intervals)
	for i := range descending {
		descending[i] = 2 * (intervals - uint64(i))
	}
	again := binary.LittleEndian.AppendUint64(nil, sources)
	other := bytes.Clone(again)
	text := []byte(UUID{}.String())
	for i := sources; i > 0; i-- {
		again = encode(again, UUID{}, 2*i)
		var u UUID
		binary.BigEndian.PutUint64(u[:], i)
		other = encode(other, u, 1)
		text = strconv.AppendUint(append(text, ':'), 2*i, 10)
	}
	check := func(name string, want uint64, s *Set, err error) {
		t.Helper()
		if err != nil || s.Count() != want {
			t.Errorf("%s: %d transactions, %v, want %d", name, s.Count(), err, want)
		}
	}
	s, err := DecodeBinary(encode(binary.LittleEndian.AppendUint64(nil, 1), UUID{}, descending...))
	check("intervals", intervals, s, err)
	s, err = DecodeBinary(again)
	check("a source again and again", sources, s, err)
	s, err = DecodeBinary(other)
	check("sources", sources, s, err)
	s, err = ParseSet(string(text))
	check("text", sources, s, err)
}

func TestIntervalsStops(t *testing.T) {
	n := 0
	for range mustParse(t, uuidA+":1:3:5").Intervals() {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d rounds", n)
	}
}

func TestAddNextAllocatesNothing(t *testing.T) {
	s := mustParse(t, uuidA+":1-3:7,"+uuidB+":1")
	g, _ := ParseGTID(uuidA + ":7")
	if n := testing.AllocsPerRun(1000, func() {
		g.N++
		if !s.Add(g) {
			t.Fatalf("%v was there", g)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseSet(f *testing.F) {
	for _, text := range []string{"", uuidA + ":1-5:7,\n" + uuidB + ":tag:1", strings.ToUpper(uuidA) + ":a:1:b:2-3 , ",
		uuidA + ":9223372036854775806", uuidA + ":5-3", uuidA + "::"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSet(text)
		if err != nil {
			return
		}
		again, err := ParseSet(s.String())
		if err != nil || !again.Equal(s) || again.String() != s.String() {
			t.Errorf("%q parses as %q, then as %v, %v", text, s, again, err)
		}
	})
}

func FuzzDecodeBinary(f *testing.F) {
	for _, text := range []string{"", uuidA + ":1-5:7", uuidA + ":7:ab:1," + uuidB + ":3"} {
		f.Add(mustParse(f, text).AppendBinary(nil))
	}
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeBinary(b)
		if err != nil {
			return
		}
		again, err := DecodeBinary(s.AppendBinary(nil))
		if err != nil || !again.Equal(s) {
			t.Errorf("%x decodes as %q, then as %v, %v", b, s, again, err)
		}
		if parsed, err := ParseSet(s.String()); err != nil || !parsed.Equal(s) {
			t.Errorf("%q parses as %v, %v", s, parsed, err)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	b.Run("next", func(b *testing.B) {
		s := mustParse(b, uuidA+":1,"+uuidB+":1")
		g, _ := ParseGTID(uuidA + ":1")
		b.ReportAllocs()
		for b.Loop() {
			g.N++
			s.Add(g)
		}
	})
	b.Run("duplicate among 10000 intervals", func(b *testing.B) {
		s := &Set{}
		for n := range uint64(10000) {
			s.Add(GTID{N: 2*n + 1})
		}
		b.ReportAllocs()
		g := GTID{N: 1}
		for b.Loop() {
			g.N = (g.N+2*7919)%20000 | 1
			if s.Add(g) {
				b.Fatalf("%v is new", g)
			}
		}
	})
}
