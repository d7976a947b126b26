// Package bulk copies between agents what is too large for Raft's messages, or
// must come without Raft: the stages of large transactions, and committed
// entries for a peer whose log is damaged.
//
// # What it owns
//
// Both ends of every bulk connection, and nothing durable: a stage belongs to
// the log that Stages stands for, its bytes are fsynced there. What it promises:
//
//   - A stage counts as held by a peer only after the peer answered that it has
//     it: length and CRC32C right, and fsynced. A majority is counted over the
//     present voters, the leader included, and also over the old voters while a
//     change is not complete. (I1 does not depend on this count: a log takes a
//     naming entry only with its stage. The count makes sure that a naming entry,
//     once proposed, can be committed without its primary.)
//   - Write waits for this node's own disk alone. Each peer's copy is read from
//     the stage's file at the peer's pace.
//   - What is received is given to the log only if every frame, the whole, and,
//     for a stage that is fetched, the naming entry agree on its bytes. All
//     else is aborted. An interrupted copy starts again from its beginning.
//   - At most one goroutine receives a stage with one id.
//   - Entries come in index order without a gap.
//
// # Copies
//
//	put      leader → every peer     a stage, while it grows
//	get      a node without it ← any a complete stage
//	entries  repair ← leader         committed entries from an index on
//	tail     repair ← leader         where the leader's log begins and ends
//	follow   learner ← its source    committed entries from an index on, for good
//
// A connection (transport's class bulk) carries one copy and is closed then.
//
//	dialler                 listener
//	PUT id             ──►
//	                   ◄──  READY, or DONE: has it already, or REFUSED
//	DATA, DATA, … END  ──►
//	                   ◄──  DONE: verified and fsynced, or REFUSED, which may come
//	                        in the middle: the disk is full
//
//	GET id             ──►
//	                   ◄──  READY, DATA, DATA, … END, or REFUSED
//
//	ENTRIES index      ──►
//	                   ◄──  READY, DATA, DATA, … END, or REFUSED
//
//	TAIL               ──►
//	                   ◄──  TAIL …, or REFUSED
//
//	FOLLOW index       ──►
//	                   ◄──  READY, then parts, each POINT, DATA, … END, with PING
//	                        while there is nothing; or REFUSED, also later
//
// A sender of DATA that has none says PING each second; 5 s without a byte end the
// connection. A write may take 30 s: the other side's disk may be slow. A copy that fails
// is tried again after 50 ms to 1 s; after a full disk, after 5 s to 60 s, because each
// attempt writes until the disk is full again. Blocked says which stages wait for that, and
// which cannot be copied for another reason. If this node's own disk does not return what
// was written, the Upload ends without another try.
//
// # Frames
//
// They are those of package frame ("QB"), with payloads of at most 1 MiB. All payloads
// are in docs/formats.md, "Bulk streams".
//
// # Bounds
//
// A stream holds one chunk that it sends (256 KiB) and one frame that it
// receives (1 MiB). A peer is pushed one stage at a time and may open four
// streams here (package transport); four stages are wanted at a time. So there
// are at most 1+4+4 streams for each peer. A stream that serves entries holds
// what one read of the log returns: 256 KiB, or one larger entry; one that a learner
// follows, at both ends, 1 MiB or one larger entry.
//
// # Goroutines
//
// Whatever waits does so by the clock.Tasks of Config, and a connection is a Conn: so the
// simulator runs all of it.
//
// New starts none. Upload starts one for each peer, which has another one read the
// answer beside each push; Want one for each stage that is wanted; Serve runs in
// its caller's. All of them need Run to be under way, and Run returns after all
// have ended: then nothing here uses the log any more.
// FetchStage, FetchEntries and AskTail run in their callers' goroutines.
package bulk
