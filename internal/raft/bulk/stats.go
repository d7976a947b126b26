package bulk

import "sync/atomic"

// Stats is a snapshot of the counters, all counted since New.
type Stats struct {
	// BytesSent and BytesReceived count the bytes of all bulk streams, frames included.
	BytesSent, BytesReceived uint64
	// StagesPushed counts stages that peers said they hold, once for each peer. Stages that a peer had already
	// count, too.
	StagesPushed uint64
	// StagesReceived counts stages that were pushed to this node, StagesFetched those that it fetched itself.
	StagesReceived, StagesFetched uint64
	// StagesServed counts stages that were fetched from this node.
	StagesServed uint64
	// StagesAborted counts copies to this node that were not completed.
	StagesAborted uint64
	// StagesRefused counts pushes that a peer refused because its disk was full.
	StagesRefused uint64
	// PushesFailed counts failed attempts, StagesRefused included. FetchesFailed counts failed rounds through
	// all peers.
	PushesFailed, FetchesFailed uint64
	// WantsRefused counts stages that were refused because of wantsMax.
	WantsRefused                 uint64
	EntriesSent, EntriesReceived uint64
}

type counters struct {
	bytesSent, bytesReceived, stagesPushed, stagesReceived, stagesFetched, stagesServed, stagesAborted,
	stagesRefused, pushesFailed, fetchesFailed, wantsRefused, entriesSent, entriesReceived atomic.Uint64
}

// Stats returns a snapshot of the counters.
func (b *Bulk) Stats() Stats {
	c := &b.counters
	return Stats{
		BytesSent: c.bytesSent.Load(), BytesReceived: c.bytesReceived.Load(),
		StagesPushed: c.stagesPushed.Load(), StagesReceived: c.stagesReceived.Load(),
		StagesFetched: c.stagesFetched.Load(), StagesServed: c.stagesServed.Load(), StagesAborted: c.stagesAborted.Load(),
		StagesRefused: c.stagesRefused.Load(),
		PushesFailed:  c.pushesFailed.Load(), FetchesFailed: c.fetchesFailed.Load(), WantsRefused: c.wantsRefused.Load(),
		EntriesSent: c.entriesSent.Load(), EntriesReceived: c.entriesReceived.Load(),
	}
}
