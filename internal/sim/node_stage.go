package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/seglog"
)

// Times and bounds of the bulk connections, as package bulk has them, but for
// chunks that are short enough to be cut off in the middle of a stage.
const (
	chunkBytesMax = 3 << 10
	chunkPatience = 500 * time.Millisecond
	uploadBackOff = 50 * time.Millisecond
	fetchBackOff  = 50 * time.Millisecond
	stageBytesMin = 4 << 10
	fetchesMax    = 16
)

// stages are a node's large transactions on their way beside the log: what
// package bulk does, without its connections.
type stages struct {
	n    *node
	log  *seglog.Log
	life *life
	// incoming holds what peers write here.
	incoming map[entry.StageID]*incoming
	wanted   map[entry.StageID]bool
}

type incoming struct {
	stage *seglog.Stage
	from  cluster.NodeID
	bytes int64
}

// upload is one stage of this node's epoch, and who has it.
type upload struct {
	a     *agent
	id    entry.StageID
	stage *seglog.Stage
	tally bulk.Tally
	grown signal
	held  signal
	ctx   context.Context
	end   context.CancelFunc
}

func (s *stages) init(n *node, log *seglog.Log, l *life) {
	*s = stages{n: n, log: log, life: l, incoming: map[entry.StageID]*incoming{}, wanted: map[entry.StageID]bool{}}
}

// openStage begins a stage of an epoch, and its way to every peer.
func (a *agent) openStage(e *epoch, id entry.StageID) (*upload, error) {
	stage, err := a.log.CreateStage(id)
	if err != nil {
		return nil, err
	}
	a.n.log("stage", "%v begins", id)
	u := &upload{a: a, id: id, stage: stage, tally: bulk.NewTally(a.n.id)}
	u.ctx, u.end = context.WithCancel(e.ctx)
	u.setMembers()
	return u, nil
}

// setMembers counts by the members of now, and begins the stage's way to whom the tally
// says.
func (u *upload) setMembers() {
	var voters, peers []cluster.NodeID
	for _, m := range u.a.members.state.Members {
		if m.Votes() {
			voters = append(voters, m.ID)
		}
		if m.ID != u.a.n.id {
			peers = append(peers, m.ID)
		}
	}
	for _, id := range u.tally.SetMembers(voters, u.a.group.Committed().State().Outgoing, peers) {
		u.a.life.start(func() { u.push(u.a.w.node(id)) })
	}
}

// Write implements tap.StageWriter.
func (u *upload) Write(p []byte) (int, error) {
	defer u.grown.fire()
	return u.stage.Write(p)
}

// Finish implements tap.StageWriter.
func (u *upload) Finish(bytes uint64, crc uint32) error {
	err := u.stage.Finish(bytes, crc)
	if err == nil {
		u.tally.Held(u.a.n.id)
	}
	u.grown.fire()
	return err
}

// Abort implements tap.StageWriter: closeUploads did.
func (u *upload) Abort() error { return nil }

// waitMajority waits until this node and a majority hold the stage. Who votes may
// change meanwhile.
func (u *upload) waitMajority(ctx context.Context) error {
	for !u.tally.Reached() {
		if err := u.a.life.Wait(ctx, uploadBackOff, u.held.next()); err != nil {
			return fmt.Errorf("wait for stage %v: %w", u.id, err)
		}
		u.setMembers()
	}
	return nil
}

// close ends the pushes, and removes a stage that was not finished.
func (u *upload) close() {
	u.end()
	_ = u.stage.Abort()
}

// push brings the stage to one peer, from its beginning until it has it.
func (u *upload) push(peer *node) {
	for u.ctx.Err() == nil {
		if u.a.pushStage(u.ctx, peer, u.id, &u.grown) {
			u.tally.Held(peer.id)
			u.held.fire()
			return
		}
		_ = u.a.life.Wait(u.ctx, uploadBackOff, nil)
	}
}

// chunk is one part of a stage on its way.
type chunk struct {
	id   entry.StageID
	at   int64
	data []byte
	// last: there is no more, and the whole has this CRC.
	last bool
	crc  uint32
}

type chunkAnswer uint8

const (
	chunkLost chunkAnswer = iota
	chunkTaken
	chunkRefused
	stageHeld
)

// pushStage sends a stage of this node's log in chunks, one at a time; true
// once the peer has all of it on its disk.
func (a *agent) pushStage(ctx context.Context, peer *node, id entry.StageID, grown *signal) bool {
	r, err := a.log.OpenStage(id)
	if err != nil {
		return false
	}
	defer func() { _ = r.Close() }()
	at, sum := int64(0), uint32(0)
	for ctx.Err() == nil {
		n, complete := r.Bytes()
		if at == n && !complete {
			_ = a.life.Wait(ctx, 0, grown.next())
			continue
		}
		c := chunk{id: id, at: at, data: make([]byte, min(chunkBytesMax, n-at))}
		if _, err := r.ReadAt(c.data, at); err != nil && len(c.data) > 0 {
			return false
		}
		at, sum = at+int64(len(c.data)), crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), c.data)
		c.last, c.crc = complete && at == n, sum
		switch a.exchange(ctx, peer, c) {
		case stageHeld:
			return true
		case chunkTaken:
		default:
			return false
		}
	}
	return false
}

// exchange sends one chunk and waits for its answer.
func (a *agent) exchange(ctx context.Context, peer *node, c chunk) chunkAnswer {
	if !a.members.has(peer.id) {
		_ = a.life.Wait(ctx, dialEvery, nil)
		return chunkLost
	}
	answer, done := chunkLost, signal{}
	a.w.net.send(a.n.id, peer.id, func() {
		to := peer.stages()
		if to == nil {
			return
		}
		to.life.run(func() {
			got, after := to.receive(a.n.id, c)
			to.life.after(after, func() {
				a.w.net.send(peer.id, a.n.id, func() {
					a.life.run(func() { answer = got; done.fire() })
				})
			})
		})
	})
	_ = a.life.Wait(ctx, chunkPatience, done.next())
	return answer
}

// stages returns what takes stages on a node, if anything does.
func (n *node) stages() *stages {
	switch {
	case n.agent != nil:
		return &n.agent.stages
	case n.healer != nil:
		return &n.healer.stages
	case n.joiner != nil && n.joiner.log != nil:
		return &n.joiner.stages
	}
	return nil
}

// receive takes a chunk from a peer; after is how long its disk works on it.
func (s *stages) receive(from cluster.NodeID, c chunk) (got chunkAnswer, after time.Duration) {
	if s.log.HasStage(c.id) {
		return stageHeld, 0
	}
	in := s.incoming[c.id]
	if in != nil && (in.from == from && c.at != in.bytes || in.from != from && c.at == 0) {
		_ = in.stage.Abort() // an earlier try was cut off
		delete(s.incoming, c.id)
		in = nil
	}
	if in == nil {
		stage, err := s.log.CreateStage(c.id)
		if err != nil || c.at != 0 {
			if err == nil {
				_ = stage.Abort()
			}
			return chunkRefused, 0
		}
		in = &incoming{stage: stage, from: from}
		s.incoming[c.id] = in
	}
	_, err := in.stage.Write(c.data)
	in.bytes += int64(len(c.data))
	if err == nil && c.last {
		delete(s.incoming, c.id)
		if err = in.stage.Finish(uint64(in.bytes), c.crc); err == nil {
			s.n.log("stage", "%v is held, %d bytes", c.id, in.bytes)
			return stageHeld, s.n.disk.appendTime(s.n.w.sched.now)
		}
	}
	if err != nil {
		_ = in.stage.Abort()
		delete(s.incoming, c.id)
		return chunkRefused, 0
	}
	return chunkTaken, 0
}

// onWanted fetches a stage that the leader has named: from it, or from any other.
func (a *agent) onWanted(w consensus.Wanted) {
	if a.stages.wanted[w.ID] || len(a.stages.wanted) >= fetchesMax {
		return
	}
	a.stages.wanted[w.ID] = true
	a.n.log("stage", "%v is wanted, named by n%d", w.ID, w.From)
	a.life.start(func() {
		defer delete(a.stages.wanted, w.ID)
		from := a.w.node(w.From)
		for tries := 0; tries < 20 && !a.log.HasStage(w.ID); tries++ {
			a.w.net.send(a.n.id, from.id, func() {
				if g := from.agent; g != nil {
					g.life.run(func() { g.life.start(func() { g.pushStage(context.Background(), a.n, w.ID, &signal{}) }) })
				}
			})
			a.life.sleep(fetchBackOff + around(a.n.rng, fetchBackOff))
			from = a.w.nodes[a.n.rng.IntN(len(a.w.nodes))]
			if from == a.n {
				from = a.w.node(w.From)
			}
		}
	})
}

// dropStages removes what nothing can name any more: once a later epoch is
// committed, earlier stages are in the log or abandoned.
func (a *agent) dropStages() {
	epoch := uint64(0)
	for {
		if e := a.group.Committed().Mark().Epoch; e > epoch {
			epoch = e
			if err := a.log.DropStages(func(id entry.StageID) bool { return id.Term >= epoch }); err != nil && !errors.Is(err, seglog.ErrNoStage) {
				a.n.log("stage", "drop: %v", err)
			}
			for id := range a.stages.incoming {
				if id.Term < epoch {
					delete(a.stages.incoming, id)
				}
			}
		}
		a.life.await(0, &a.loop.changed)
		a.life.sleep(a.n.hiccup())
	}
}
