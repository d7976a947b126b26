// Package seglog is quorate's log: segmented, checksummed, fsynced. It owns one
// directory and all files in it (docs/formats.md, "The log").
//
// # Segments
//
// A sealed segment is a valid MySQL binlog file. Raft's own data travels in events of type IGNORABLE, which
// every reader of binlogs skips. The transactions stand between them as their primary wrote them. The layout of
// segment, header and record is in docs/formats.md, "Segment". This layout has these properties:
//
//   - Segments and records are chained: each checksum starts with the one before. A log
//     whose oldest segments were purged begins with a number and an index above 1; then
//     the chain of its first segment cannot be checked against anything.
//   - Each record has the durable offset of its group: the file was known to be fsynced up
//     to there when the group was written. By it, recovery tells a torn tail from corruption.
//   - Each record repeats the segment's seed, and its event has its own place as log_pos.
//     So a copy of a record inside a user's data is never taken for a record.
//
// A new segment begins with an epoch or rotate entry, which brings the segment's FORMAT_DESCRIPTION, with an
// entry that names a stage, and where the segment before would pass SegmentBytesMax.
//
// In memory a segment has one point for each 64 KiB, not a place for each entry. Readers walk over the heads of
// records from such a point and verify their chain.
//
// # Stages
//
// A stage holds the bytes of a large transaction that travels beside the log. Its file begins with a reserved
// region. When the entry that names the stage is appended, the file is renamed and becomes a segment of its
// own. The layout is in docs/formats.md, "Segment". The transaction's bytes are synced before the file is
// renamed, so such a segment has no torn tail. Nothing is appended to it. If PREVIOUS_GTIDS does not fit into
// the region, the bytes are copied.
//
// If a conflict removes a naming entry, its segment becomes a stage again: the next leader may bring the entry
// back, and relies on the stage. DropStages removes stages that no entry names any more. No stage outlives the
// process.
//
// # State file
//
// The identity, written once, and two slots for the hard state (docs/formats.md, "State
// file"). The valid slot with the higher sequence counts. The slot that was synced last is
// never written next, so a torn write costs nothing that was promised.
//
// # Durability contract
//
// When Append returns nil, its entries are on disk, and so are term and vote if they changed. A commit index
// may be lost; Raft learns it again. One Append is one group: few pwrites, and one fdatasync, into zeros that
// were prepared before. The order inside is: truncation (synced), entries (synced), hard state. Any error of a
// write or sync is terminal: nothing after it is accepted, and the next Open decides what is on disk, as after
// a crash. The exception is a full disk. If a write, or making or renaming a file, finds no room, the call cuts
// off what it may have left and returns ErrFull: nothing of it is acknowledged, and it may be made again. The
// hard state has had its place since the log was made. A sync that finds no room is terminal like all others.
//
// The log assumes that a disk writes a sector of 512 bytes as a whole, and does not touch the bytes of other
// sectors: a group begins in the middle of the sector in which the group before ended.
//
// Every step that a crash can interrupt leaves a prefix of the log:
//
//   - A new segment is written under a temporary name, synced, renamed; the
//     segment before it was cut to its exact length and synced before that. So
//     only the last segment can have a torn tail, and never a torn header.
//   - Truncation removes whole segments newest first, each removal synced, and
//     then cuts inside of one, synced, before anything is written again.
//   - Purge removes whole segments oldest first, each removal synced. It leaves
//     an entry that is committed. So the first entry of a log that begins behind
//     index 1 is known to be committed, even if the commit index was lost. The
//     log of a node that joins may begin there from its start (Options.Begin): it
//     is a copy.
//   - A stage is synced with the head of its segment, then renamed, and the
//     directory synced.
//
// # Recovery
//
// Open reads and verifies every segment before it changes anything but saved indexes. If a record of the last segment is damaged,
// the highest durable offset in any valid record of that segment decides. Damage at or above it is a torn tail,
// which was never acknowledged. It is cut, even if valid records follow it. Damage below it, in another
// segment, in a header or in a segment of a stage is corruption, and so is a log that ends before the commit
// index of the hard state: Open fails with ErrCorrupt. A record of a later version, with a correct checksum, is
// neither: Open fails with ErrFormat. Then Open writes the last group again and syncs it: the process that
// wrote it may have died of a failed fsync, whose pages the kernel serves from memory as if they were on disk.
// A last segment of its exact length may have been sealed, and copied: the next entry begins a new one.
//
// # Saved indexes
//
// With Options.Indexed, Open does not read a segment that has a saved index, except for its header. The index counts
// only if the segment is not the last one, all its entries are at or below the commit index that is on disk, and
// checksum, length and seed fit. The header of the next segment shows that it still is the index of these records: the
// chain goes on. If anything is wrong, Open removes all indexes and reads all segments, as above. Append saves the index of a segment once a
// later segment begins and all its entries are committed: such a segment never changes. Open saves it, too, as soon as it has
// read the segment and the header of the next one: a start that is ended while it reads goes on there the next time. The file is not synced, since
// nothing relies on it. Check reads those segments later. A reader that finds a segment damaged removes its saved index, so
// the next Open finds that damage, too. Who has heard of damage from Check calls Doubt for that.
//
// # Readers
//
// The newest entries are in a FIFO cache. Log.Entries reads other entries at once. A caller that reads in
// sequence uses a Reader, and closes it. If a Reader is behind the cache and goes on where it stopped, Run
// reads ahead of it, one chunk of 256 KiB at a time, verified, and the Reader takes the entries from memory.
// There are places for eight such Readers, until they have caught up or are closed; other Readers read for
// themselves. EntriesInMemory is for raft's peers, which never wait. Raft does not say for which peer it reads,
// so peers are recognised by the index at which they go on, and the last four have places of their own. A
// truncation empties the prefetch cache. The page cache is told to drop what was written or read ahead: few
// readers come back for it, and pages that are used again and again cost less than new ones.
//
// # Goroutines and locks
//
// The package starts none. Run belongs to a goroutine that reads ahead and ends before Close; without it,
// readers that lag wait for the disk. Check ends before Close, too. Append and Close belong to one goroutine, a Stage to the goroutine that
// writes it. All other methods may be called by any goroutine. One lock guards what readers share and is never
// held during a write or a sync. Another lock guards the stages, and is held during calls that make, rename and
// remove their names. Purge works at the front of the log while Append works at its end: what Purge removes is
// committed and has a committed entry behind it, so no truncation reaches it. Readers open the segment's file
// by name. A reader that was overtaken by a truncation or a purge notices that, and starts again or gets
// ErrCompacted.
package seglog
