package seglog

// cacheEntryBytes is what an entry costs beside its data: the struct and a share of the slice's spare room.
const cacheEntryBytes = 96

// cache holds the newest entries of the log, without a gap, up to bytesMax. Before the log drops entries at its
// end, the cache drops them.
type cache struct {
	entries []Entry
	// room is the whole memory of which entries is a part, as a slice of length 0.
	room     []Entry
	bytes    int64
	bytesMax int64
}

func cost(e *Entry) int64 { return int64(len(e.Data)) + cacheEntryBytes }

// add takes the entries that follow the cached ones.
func (c *cache) add(entries []Entry) {
	if n := len(c.entries) + len(entries); n > cap(c.entries) {
		c.moveUp(n)
	}
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

// moveUp moves the entries to the start of their room. If less than a quarter of that would then be free, they
// get a room of twice n. So few entries are copied for each entry that is added.
func (c *cache) moveUp(n int) {
	if 4*n > 3*cap(c.room) {
		c.room = make([]Entry, 0, 2*n)
		c.entries = append(c.room, c.entries...)
		return
	}
	c.entries = append(c.room, c.entries...)
	// Old copies behind the entries must not keep the data in memory.
	clear(c.entries[len(c.entries):cap(c.entries)])
}

// truncate drops the entries from index on.
func (c *cache) truncate(index uint64) {
	for n := len(c.entries); n > 0 && c.entries[n-1].Index >= index; n-- {
		c.bytes -= cost(&c.entries[n-1])
		c.entries[n-1] = Entry{}
		c.entries = c.entries[:n-1]
	}
}

// from returns the index of the first entry in the cache; false if the cache is empty.
func (c *cache) from() (uint64, bool) {
	if len(c.entries) == 0 {
		return 0, false
	}
	return c.entries[0].Index, true
}
