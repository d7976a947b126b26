package seglog

import "sort"

// pointBytes is the least distance between the points of an index. A point has 16 bytes: 25 MiB for a log of
// 100 GiB, whatever the length of its entries. To find an entry, a reader walks over less than this.
const pointBytes = 64 << 10

// sparseIndex says where a segment's records are, without a word for each of them. It only grows at its end, so
// a reader may keep a copy of the struct.
type sparseIndex struct {
	// count is the number of records: a segment of 1 GiB has 15 million at most.
	count  uint32
	points []point
	terms  []termRun
}

// point is the place of one record.
type point struct {
	offset int64
	// ordinal counts the segment's records from 0.
	ordinal uint32
	// chain is the chain value before the record. A walk needs it to verify the heads that it passes.
	chain uint32
}

// termRun says that the records from ordinal on are of term.
type termRun struct {
	term    uint64
	ordinal uint32
}

// place is the place of one record in its file.
type place struct {
	offset int64
	term   uint64
	// chain is the chain value before the record.
	chain uint32
}

// add takes the next record.
func (x *sparseIndex) add(p place) {
	if n := len(x.points); n == 0 || p.offset-x.points[n-1].offset >= pointBytes {
		x.points = append(x.points, point{p.offset, x.count, p.chain})
	}
	if n := len(x.terms); n == 0 || x.terms[n-1].term != p.term {
		x.terms = append(x.terms, termRun{p.term, x.count})
	}
	x.count++
}

// seek returns the last point at or before a record of the index.
func (x *sparseIndex) seek(ordinal uint32) point {
	return x.points[sort.Search(len(x.points), func(i int) bool { return x.points[i].ordinal > ordinal })-1]
}

// bound returns an offset at or behind the end of the records before ordinal: the nearest known one, else end.
func (x *sparseIndex) bound(ordinal uint32, end int64) int64 {
	i := sort.Search(len(x.points), func(i int) bool { return x.points[i].ordinal >= ordinal })
	if i == len(x.points) {
		return end
	}
	return x.points[i].offset
}

// term returns the term of a record of the index.
func (x *sparseIndex) term(ordinal uint32) uint64 {
	return x.terms[sort.Search(len(x.terms), func(i int) bool { return x.terms[i].ordinal > ordinal })-1].term
}

// cut returns the index of the first count records; count is less than the number of records. The result has no
// spare room, so growing it does not write into a reader's copy.
func (x *sparseIndex) cut(count uint32) sparseIndex {
	points := sort.Search(len(x.points), func(i int) bool { return x.points[i].ordinal >= count })
	terms := sort.Search(len(x.terms), func(i int) bool { return x.terms[i].ordinal >= count })
	return sparseIndex{count, x.points[:points:points], x.terms[:terms:terms]}
}
