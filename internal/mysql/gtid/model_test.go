package gtid

import (
	"slices"
	"strings"
	"testing"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is the slow set with which Set is compared.
type model map[GTID]bool

func modelOf(s *Set) model {
	m := model{}
	for src, iv := range s.Intervals() {
		for n := iv.Start; n <= iv.End; n++ {
			m[GTID{src.UUID, src.Tag, n}] = true
		}
	}
	return m
}

// check fails unless s holds exactly m and its representation is canonical.
func check(t *rapid.T, s *Set, m model) {
	t.Helper()
	if diff := cmp.Diff(m, modelOf(s)); diff != "" {
		t.Fatalf("set differs from the model (-want +got):\n%s", diff)
	}
	if s.Count() != uint64(len(m)) || s.IsEmpty() != (len(m) == 0) {
		t.Fatalf("Count %d, IsEmpty %v for %d GTIDs", s.Count(), s.IsEmpty(), len(m))
	}
	var last *Source
	var end uint64
	for src, iv := range s.Intervals() {
		switch {
		case iv.Start > iv.End:
			t.Fatalf("interval %v is empty", iv)
		case last != nil && src.compare(*last) < 0:
			t.Fatalf("source %v after %v", src, *last)
		case last != nil && src == *last && iv.Start <= end+1:
			t.Fatalf("interval %v touches the one before, which ends at %d", iv, end)
		}
		last, end = &src, iv.End
	}
}

// The generators use few values, so that sets overlap often.
func drawGTID(t *rapid.T) GTID {
	return GTID{
		UUID: UUID{0: byte(rapid.IntRange(0, 2).Draw(t, "uuid"))},
		Tag:  rapid.SampledFrom([]Tag{"", "", "a", "b_1"}).Draw(t, "tag"),
		N:    uint64(rapid.IntRange(1, 24).Draw(t, "n")),
	}
}

func drawSet(t *rapid.T, name string) (*Set, model) {
	s, m := &Set{}, model{}
	for _, g := range rapid.SliceOfN(rapid.Custom(drawGTID), 0, 40).Draw(t, name) {
		if s.Add(g) == m[g] {
			t.Fatalf("Add(%v) says new = %v, the model has it: %v", g, !m[g], m[g])
		}
		m[g] = true
	}
	return s, m
}

func TestAddAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := drawSet(t, "set")
		for range rapid.IntRange(0, 5).Draw(t, "intervals") {
			from := drawGTID(t)
			end := from.N + uint64(rapid.IntRange(0, 12).Draw(t, "more"))
			if err := s.AddInterval(from.UUID, from.Tag, from.N, end); err != nil {
				t.Fatal(err)
			}
			for n := from.N; n <= end; n++ {
				m[GTID{from.UUID, from.Tag, n}] = true
			}
			check(t, s, m)
		}
		check(t, s, m)
		for range 10 {
			if g := drawGTID(t); s.Contains(g) != m[g] {
				t.Fatalf("Contains(%v) = %v", g, !m[g])
			}
		}
	})
}

func TestAlgebraAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, am := drawSet(t, "a")
		b, bm := drawSet(t, "b")
		beforeB := b.String()

		union, common, minus := model{}, model{}, model{}
		for g := range am {
			union[g] = true
			if bm[g] {
				common[g] = true
			} else {
				minus[g] = true
			}
		}
		for g := range bm {
			union[g] = true
		}
		u := a.Clone()
		u.Union(b)
		check(t, u, union)
		d := a.Clone()
		d.Subtract(b)
		check(t, d, minus)
		check(t, Intersect(a, b), common)
		check(t, a, am) // Clone shares nothing, Intersect changes nothing.
		if got := a.Intersects(b); got != (len(common) > 0) {
			t.Fatalf("Intersects = %v with %d in common", got, len(common))
		}
		if got := a.ContainsSet(b); got != (len(common) == len(bm)) {
			t.Fatalf("ContainsSet = %v: %d of %d", got, len(common), len(bm))
		}
		if got := a.Equal(b); got != (len(common) == len(bm) && len(minus) == 0) {
			t.Fatalf("Equal = %v for %v and %v", got, a, b)
		}
		// Adding to a result must work as before: the cached place is checked.
		g := drawGTID(t)
		if d.Add(g) == minus[g] {
			t.Fatalf("Add(%v) after Subtract says new = %v", g, !minus[g])
		}
		if b.String() != beforeB {
			t.Fatalf("the argument changed from %q to %q", beforeB, b)
		}
	})
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := drawSet(t, "set")
		text := s.String()
		parsed, err := ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		check(t, parsed, m)
		if parsed.String() != text || !parsed.Equal(s) {
			t.Fatalf("%q becomes %q", text, parsed)
		}
		// Order, case, white space and repetition do not matter.
		elements := append(strings.Split(text, ","), strings.ToUpper(text), " \n")
		shuffled := strings.Join(rapid.Permutation(elements).Draw(t, "order"), " ,\n")
		if parsed, err = ParseSet(shuffled); err != nil || !parsed.Equal(s) {
			t.Fatalf("ParseSet(%q) = %v, %v", shuffled, parsed, err)
		}
		encoded := s.AppendBinary([]byte("x"))[1:]
		decoded, err := DecodeBinary(encoded)
		if err != nil || !decoded.Equal(s) {
			t.Fatalf("decoded %v, %v; want %v", decoded, err, s)
		}
		check(t, decoded, m)
		for i := range encoded {
			if got, err := DecodeBinary(encoded[:i]); err == nil {
				t.Fatalf("decoded %v from %d of %d bytes", got, i, len(encoded))
			}
		}
	})
}

// TestAgainstGoMySQL compares text and encoding with another implementation.
func TestAgainstGoMySQL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := drawSet(t, "set")
		theirs, err := gomysql.ParseMysqlGTIDSet(s.String())
		if err != nil {
			t.Fatal(err)
		}
		if theirs.String() != s.String() {
			t.Fatalf("text %q, theirs %q", s, theirs)
		}
		if ours := s.AppendBinary(nil); !slices.Equal(ours, theirs.Encode()) {
			t.Fatalf("encoding\n%x, theirs\n%x", ours, theirs.Encode())
		}
	})
}
