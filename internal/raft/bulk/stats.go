package bulk

import "sync/atomic"

// Stats is a snapshot of the counters, all counted since New.
type Stats struct {
	// BytesSent and BytesReceived are of all bulk streams, frames included.
	BytesSent, BytesReceived uint64
	// StagesPushed counts stages that peers said they hold, one for each peer,
	// also those that they had already.
	StagesPushed uint64
	// StagesReceived were pushed to this node, StagesFetched it fetched itself.
	StagesReceived, StagesFetched uint64
	// StagesServed were fetched from this node.
	StagesServed uint64
	// StagesAborted are copies to this node that did not come to their end.
	StagesAborted uint64
	// StagesRefused are pushes that a peer refused because its disk was full.
	StagesRefused uint64
	// PushesFailed counts attempts, those included; FetchesFailed rounds through
	// all peers.
	PushesFailed, FetchesFailed uint64
	// WantsRefused were beyond wantsMax.
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
