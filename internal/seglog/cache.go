package seglog

// cacheEntryBytes is what an entry costs beside its data: the struct and a
// share of the slice's spare room.
const cacheEntryBytes = 96

// cache holds the newest entries of the log, without a gap, up to bytesMax.
// What the log drops last it drops first.
type cache struct {
	entries  []Entry
	bytes    int64
	bytesMax int64
}

func cost(e *Entry) int64 { return int64(len(e.Data)) + cacheEntryBytes }

// add takes the entries that follow those it has.
func (c *cache) add(entries []Entry) {
	c.entries = append(c.entries, entries...)
	for i := range entries {
		c.bytes += cost(&entries[i])
	}
	for c.bytes > c.bytesMax {
		c.bytes -= cost(&c.entries[0])
		c.entries[0] = Entry{}
		c.entries = c.entries[1:]
	}
}

// truncate drops the entries from index on.
func (c *cache) truncate(index uint64) {
	for n := len(c.entries); n > 0 && c.entries[n-1].Index >= index; n-- {
		c.bytes -= cost(&c.entries[n-1])
		c.entries[n-1] = Entry{}
		c.entries = c.entries[:n-1]
	}
}

// from returns the index of the first entry it holds; false if it is empty.
func (c *cache) from() (uint64, bool) {
	if len(c.entries) == 0 {
		return 0, false
	}
	return c.entries[0].Index, true
}
