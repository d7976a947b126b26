// Package seglog is quorate's log: segmented, checksummed, fsynced. It owns one
// directory and all files in it (docs/formats.md, "The log").
//
// # Segments
//
// A sealed segment is a valid MySQL binlog file. Raft's own data travels in events of type
// IGNORABLE, which every reader of binlogs skips. The transactions stand between them as
// their primary wrote them. The layout of segment, header and record is in docs/formats.md,
// "Segment". What it is good for:
//
//   - Segments and records are chained: each checksum starts with the one before. A log
//     whose oldest segments were purged begins with a number and an index above 1; the
//     chain of its first segment has nothing to be checked against.
//   - Each record has its group's durable offset: up to there the file was known to be
//     fsynced when the group was written. Recovery tells a torn tail from corruption by it.
//   - Each record repeats the segment's seed, and its event has its own place as log_pos.
//     So a copy of a record inside a user's data is never taken for a record.
//
// A segment ends where an epoch or a rotate entry comes (it is the first of
// the next segment and brings its FORMAT_DESCRIPTION), where a stage is named,
// or where it would pass SegmentBytesMax.
//
// In memory a segment has a point for each 64 KiB, not a place for each entry:
// readers walk over the heads from there and verify their chain.
//
// # Stages
//
// A stage is a large transaction's bytes on their way beside the log. Its file
// begins with a reserved region, and becomes a segment of its own, renamed, when
// the entry that names it is appended. The layout is in docs/formats.md, "Segment". The transaction's bytes are synced before the
// file is renamed, so such a segment has no torn tail. Nothing is appended to it. If
// PREVIOUS_GTIDS does not fit into the region, the bytes are copied.
//
// A naming entry that a conflict removes makes its segment a stage again: the
// next leader may bring the entry back, and relies on the stage. DropStages
// removes those that nobody names any more; a stage does not outlive the process.
//
// # State file
//
// The identity, written once, and two slots for the hard state (docs/formats.md, "State
// file"). The valid slot with the higher sequence counts. The slot that was synced last is
// never written next, so a torn write costs nothing that was promised.
//
// # Durability contract
//
// When Append returns nil, its entries are on disk, and so are term and vote if
// they changed; a commit index may be lost, that is for Raft to learn again.
// One Append is one group: few pwrites, one fdatasync, into zeros prepared
// ahead. Order inside: truncation (synced), entries (synced), hard state.
// Any error of a write or sync is terminal: nothing after it is accepted, and
// what is on disk is decided by the next Open, as after a crash. The exception
// is a full disk. Where a write, or making or renaming a file, finds no room,
// the call cuts off what it may have left and returns ErrFull: nothing of it is
// acknowledged, and it may be made again. Hard state has its place since the log
// was made; a sync that finds no room is terminal like all others.
//
// A disk is taken to write a sector of 512 bytes as a whole, and to leave the
// bytes of others alone: a group begins in the middle of the sector in which the
// group before ended.
//
// Every step that a crash can interrupt leaves a prefix of the log:
//
//   - A new segment is written under a temporary name, synced, renamed; the
//     segment before it was cut to its exact length and synced before that. So
//     only the last segment can have a torn tail, and never a torn header.
//   - Truncation removes whole segments newest first, each removal synced, and
//     then cuts inside of one, synced, before anything is written again.
//   - Purge removes whole segments oldest first, each removal synced, and leaves
//     an entry that is committed: a log that begins behind index 1 proves its
//     first entry's commit, whatever became of the commit index. The log of a
//     node that joins may begin there from the first (Options.Begin): it is a copy.
//   - A stage is synced with the head of its segment, then renamed, and the
//     directory synced.
//
// # Recovery
//
// Open reads and verifies every segment, before it changes anything. Where a
// record of the last segment is damaged, the highest durable offset in any
// valid record of that segment decides: damage at or above it is a torn tail,
// which was never acknowledged, and is cut, even with valid records behind it.
// Damage below it, in another segment, in a header or in a segment of a stage is
// corruption, and so is a log that ends before the commit index of the hard
// state: Open fails with ErrCorrupt. A record of a later version is neither: its
// checksum is right, and Open fails with ErrFormat. Then Open writes the last group again and syncs it: the process
// that wrote it may have died of a failed fsync, whose pages the kernel serves
// from memory as if they were on disk. A last segment of its exact length may
// have been sealed, and copied: the next entry begins a new one.
//
// # Readers
//
// The newest entries are in a FIFO cache. Log.Entries reads at once what is not there.
// Who reads on has a Reader, and closes it: where it is behind the cache, and goes on
// where it stopped, Run reads ahead of it, one chunk of 256 KiB at a time, verified, and
// the Reader takes the entries out. There are places for eight of those, until they have
// caught up or are closed; others read for themselves. EntriesInMemory is for raft's
// peers, which never wait: raft does not say for whom it reads, so they are known by the
// place where they go on, and the last four have places of their own. A truncation empties the prefetch cache. What was written or read ahead is
// not left to the page cache: those who come back for it are few, and pages in
// use again and again cost less than new ones.
//
// # Goroutines and locks
//
// The package starts none. Run belongs to a goroutine that reads ahead and ends before
// Close; without it, readers that lag wait for the disk. Append and Close belong
// to one goroutine, a Stage to the one that writes it; all other methods may be
// called by any. A lock guards
// what readers share and is never held over a write or a sync; another guards
// the stages, and is held over calls that make, rename and remove their names.
// Purge works at the front of the log while Append works at its end: what it
// removes is committed, with an entry behind it, and no truncation comes there.
// Readers open the segment's file by name; a reader that was overtaken by a
// truncation or a purge sees that, and starts again or gets ErrCompacted.
package seglog
