// Package bulk copies between agents what is too large for Raft's messages, or
// must come without Raft: the stages of large transactions, and committed
// entries for a peer whose log is damaged.
//
// # What it owns
//
// Both ends of every bulk connection, and nothing durable: a stage belongs to the log behind Stages, and is
// fsynced there. What the package promises:
//
//   - A stage counts as held by a peer only after the peer answered that it has
//     it: length and CRC32C right, and fsynced. A majority is counted over the
//     present voters, the leader included, and also over the old voters while a
//     change is not complete. (I1 does not depend on this count: a log takes a
//     naming entry only with its stage. The count makes sure that a naming entry,
//     once proposed, can be committed without its primary.)
//   - Write waits only for this node's own disk. Each peer's copy is read from
//     the stage's file at the peer's pace.
//   - Received bytes go to the log only if every frame, the whole copy, and, for
//     a stage that is fetched, the naming entry agree on them. Any other copy is
//     aborted. An interrupted copy starts again from its beginning.
//   - At most one goroutine receives the stage with one id.
//   - Entries come in index order without a gap.
//
// # Copies
//
//	put      leader → every peer     a stage, while it grows
//	get      a node without it ← any a complete stage
//	entries  repair ← leader         committed entries from an index on
//	tail     repair ← leader         where the leader's log begins and ends
//	follow   learner ← its source    committed entries from an index on, without an end
//
// A connection (transport's class bulk) carries one copy and is closed after it.
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
// A sender that has no DATA at the moment sends PING each second; 5 s without a byte end the connection. A
// write may take 30 s: the other side's disk may be slow. A copy that fails is tried again after 50 ms to 1 s.
// After a full disk the wait is 5 s to 60 s, because each attempt writes until the disk is full again. Blocked
// says which stages wait for that, and which cannot be copied for another reason. If this node's own disk does
// not return what was written, the Upload ends without another attempt.
//
// # Frames
//
// They are those of package frame ("QB"), with payloads of at most 1 MiB. All payloads
// are in docs/formats.md, "Bulk streams".
//
// # Bounds
//
// A stream holds one chunk that it sends (256 KiB) and one frame that it receives (1 MiB). A peer is pushed one
// stage at a time and may open four streams here (package transport); four stages are wanted at a time. So
// there are at most 1+4+4 streams for each peer. A stream that serves entries holds what one read of the log
// returns: 256 KiB, or one larger entry. A stream that a learner follows holds, at both ends, 1 MiB or one
// larger entry.
//
// # Goroutines
//
// All waiting goes by the clock.Tasks of Config, and a connection is a Conn. So the simulator can run the whole
// package.
//
// New starts none. Upload starts one for each peer; beside each push another one reads the peer's answer. Want
// starts one for each stage that is wanted. Serve runs in its caller's goroutine. All of them need Run to be
// under way, and Run returns after all have ended: then nothing here uses the log any more. FetchStage,
// FetchEntries and AskTail run in their callers' goroutines.
package bulk
