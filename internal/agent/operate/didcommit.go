package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// didCommitTimeout bounds the search: it reads the log from the transaction to the
// end of its epoch, some hundred MiB a second.
const didCommitTimeout = time.Minute

// epochState is what decides whether an epoch can still commit something.
type epochState struct {
	// Term was Raft's before a barrier was passed, Newest is the newest epoch
	// committed after it; 0 = not known.
	Term, Newest uint64
}

// over tells whether everything that an epoch will ever have is committed here. A
// later epoch ends it: the commit check takes nothing of it any more. A barrier of
// a later term does, too: its leader has first committed an entry of that term, and
// with it whatever the leader had of the epoch.
func (s epochState) over(epoch uint64) bool { return s.Newest > epoch || s.Term > epoch }

// why says how it is known that the epoch is over.
func (s epochState) why(epoch uint64) string {
	if s.Newest > epoch {
		return fmt.Sprintf("epoch %d has ended: epoch %d came after it", epoch, s.Newest)
	}
	return fmt.Sprintf("epoch %d has ended: the cluster is in term %d", epoch, s.Term)
}

// passBarrier passes a read barrier: after it, this node knows what was committed
// anywhere before. It reads the newest epoch before anything else is looked up: a
// transaction of an earlier epoch that is not committed then never will be.
func (s *Server) passBarrier(ctx context.Context) (epochState, error) {
	state := epochState{Term: s.Node.Raft().Role().Term}
	ctx, cancel := context.WithTimeout(ctx, control.Timeout)
	defer cancel()
	err := s.Node.Raft().Barrier(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return epochState{}, control.Errorf(control.CodeNoLeader, "no majority has answered within %v, so it is not known: %s", control.Timeout, s.reachable())
	}
	if err != nil {
		return epochState{}, control.Errorf(control.CodeNoLeader, "it is not known: %v", err)
	}
	if state.Newest = s.Node.Raft().Committed().Mark().Epoch; state.Newest == 0 { // nothing of an epoch came since the start
		log := s.Node.Log()
		defer log.Close()
		e, _, _, err := replay.FindEpoch(log)
		if err != nil {
			return epochState{}, err
		}
		state.Newest = e.Term
	}
	return state, nil
}

// didCommitRequest says what became of a transaction.
func (s *Server) didCommitRequest(ctx context.Context, r control.Request, args cluster.DidCommitRequest) (Done, error) {
	text := args.GTID + args.SessionToken
	id, err := gtid.ParseGTID(text)
	if err != nil || args.GTID != "" && args.SessionToken != "" {
		return Done{}, control.Errorf(control.CodeInvalid, "%q is no GTID, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23", text)
	}
	var answer cluster.DidCommit
	if args.GTID != "" {
		answer, err = s.didCommit(ctx, id)
	} else {
		answer, err = s.didSessionCommit(ctx, id)
	}
	if err != nil {
		return Done{}, err
	}
	answer.Node = s.Self.Name
	if leader := s.Node.Raft().Role().Leader; answer.Outcome == cluster.OutcomeUnknown && r.From == "" && leader != 0 && leader != s.Self.ID {
		// The primary may know that the session is gone.
		if better, ok := s.Forward(ctx, s.all[r.Name], leader, r); ok && better.Code == control.CodeOK {
			return Done{Result: better.Result}, nil
		}
	}
	return Done{Result: answer}, nil
}

// didCommit says what became of the transaction that has a GTID.
func (s *Server) didCommit(ctx context.Context, id gtid.GTID) (cluster.DidCommit, error) {
	state, err := s.passBarrier(ctx)
	if err != nil {
		return cluster.DidCommit{}, err
	}
	server, known, err := s.epochServer(state.Newest)
	if err != nil {
		return cluster.DidCommit{}, err
	}
	asked := &gtid.Set{}
	asked.Add(id)
	if s.Node.Raft().Committed().Contains(asked) {
		return s.committedAt(id)
	}
	log := s.Node.Log()
	defer log.Close()
	ours, err := s.isOurs(log, id.UUID)
	if err != nil {
		return cluster.DidCommit{}, err
	}
	return notCommitted(state, id, server, known, ours), nil
}

// isOurs tells whether a server's own transactions are committed in this cluster alone, so that none comes from a
// source or another site later. It is the mysqld of a node, or has an epoch in this log.
func (s *Server) isOurs(log Log, server gtid.UUID) (bool, error) {
	for _, n := range s.Board.Nodes() { // the begin of a long epoch is purged
		if u, err := gtid.ParseUUID(n.ServerUUID); err == nil && u == server {
			return true, nil
		}
	}
	// A log that was restored also has the epochs of the servers that were backed up. They may go on writing, and
	// this cluster may follow them. The ballot of another site is never forgotten.
	state := s.Board.State()
	if cluster.Generation(state.Version) > 0 && (state.Follow != nil || state.CutOver != nil || state.SiteBallot != cluster.Ballot{}) {
		return false, nil
	}
	return replay.HasEpochOf(log, server)
}

// wroteHere tells whether a session of this cluster's clients wrote a transaction of an epoch. A transaction that
// was followed keeps its GTID, but the agent's connections wrote it, each of them for many clients.
func (s *Server) wroteHere(log Log, epoch uint64, server gtid.UUID) (bool, error) {
	primary, known, err := replay.ServerOfEpoch(log, epoch)
	if err != nil || known && primary != server {
		return false, err
	}
	return s.isOurs(log, server)
}

// notCommitted says what becomes of a GTID that is not committed. server is the server
// of the newest epoch, if it is known; ours: isOurs of the GTID's server.
func notCommitted(state epochState, id gtid.GTID, server gtid.UUID, known, ours bool) cluster.DidCommit {
	// If somebody knows a GTID, its epoch is committed: that was before the server
	// gave its first GTID.
	again := "; should its server be the primary again, it may give the GTID to another transaction"
	switch {
	case !ours:
		// A typo must not read as "never will be": the client would write it again.
		return cluster.DidCommit{Outcome: cluster.OutcomeUnknown, Reason: fmt.Sprintf(
			"it is not committed here, and server %s is not known to have been a primary of this cluster: a typo, or a transaction of another cluster or of a source?", id.UUID)}
	case state.Newest != 0 && state.Term > state.Newest:
		return cluster.DidCommit{Outcome: cluster.OutcomeNotCommitted, Reason: state.why(state.Newest) + again}
	case known && server != id.UUID:
		return cluster.DidCommit{Outcome: cluster.OutcomeNotCommitted, Reason: fmt.Sprintf(
			"the server that gives such GTIDs is not the primary: the newest epoch, %d, belongs to server %s%s", state.Newest, server, again)}
	case !known:
		return cluster.DidCommit{Outcome: cluster.OutcomeUnknown, Epoch: state.Newest, Reason: fmt.Sprintf(
			"it is not committed; this node does not know to which server epoch %d belongs", state.Newest)}
	}
	return cluster.DidCommit{Outcome: cluster.OutcomeUnknown, Epoch: state.Newest, Reason: fmt.Sprintf(
		"it is not committed yet, and its server is the primary of epoch %d: it may be on its way", state.Newest)}
}

// notAToken answers for a token that the log does not have. A session gets its token
// with an OK: so the transaction was committed before the barrier, or the token was
// never given here.
func notAToken(committedNow bool) cluster.DidCommit {
	if committedNow {
		return cluster.DidCommit{Outcome: cluster.OutcomeUnknown, Reason: "the token's own transaction was committed just now: ask again"}
	}
	return cluster.DidCommit{Outcome: cluster.OutcomeUnknown,
		Reason: "no transaction of this cluster has this token: a typo, or another cluster?"}
}

// followedToken answers for a token whose transaction is not known to be of a client of this cluster.
func followedToken(f replay.Session, token gtid.GTID) cluster.DidCommit {
	return cluster.DidCommit{Outcome: cluster.OutcomeUnknown, Reason: fmt.Sprintf(
		"the token's own transaction is in entry %d, and server %s is not known to have been the primary of epoch %d: the transaction was followed from a source or another site, or is very old",
		f.Index, token.UUID, f.Place.Epoch)}
}

// committedAt tells where a committed transaction is.
func (s *Server) committedAt(id gtid.GTID) (cluster.DidCommit, error) {
	log := s.Node.Log()
	defer log.Close()
	p, err := replay.FindTransaction(log, id)
	if errors.Is(err, replay.ErrPurged) {
		return cluster.DidCommit{Outcome: cluster.OutcomeCommitted, Reason: "it is older than the oldest entry of the log"}, nil
	}
	if err != nil {
		return cluster.DidCommit{}, err
	}
	return cluster.DidCommit{
		Outcome: cluster.OutcomeCommitted, Index: p.Index, Epoch: p.Epoch, Connection: p.Thread,
		Reason: fmt.Sprintf("it is in entry %d of the log, written by connection %d in epoch %d", p.Index, p.Thread, p.Epoch),
	}, nil
}

// epochServer returns the server of the newest epoch: from its entry, or from the status
// of the primary, whose term names the epoch.
func (s *Server) epochServer(epoch uint64) (gtid.UUID, bool, error) {
	log := s.Node.Log()
	defer log.Close()
	e, _, ok, err := replay.FindEpoch(log)
	if err != nil {
		return gtid.UUID{}, false, err
	}
	if ok && e.Term == epoch {
		return e.ServerUUID, true, nil
	}
	for _, n := range s.Board.Nodes() {
		if n.Role != status.RolePrimary || n.Term != epoch {
			continue
		}
		if u, err := gtid.ParseUUID(n.ServerUUID); err == nil {
			return u, true, nil
		}
	}
	return gtid.UUID{}, false, nil
}

// didSessionCommit says whether the session that wrote a transaction committed
// another one after it.
func (s *Server) didSessionCommit(ctx context.Context, token gtid.GTID) (cluster.DidCommit, error) {
	state, err := s.passBarrier(ctx)
	if err != nil {
		return cluster.DidCommit{}, err
	}
	log := s.Node.Log()
	defer log.Close()
	f, err := replay.FollowSession(log, token, ctx.Err)
	switch {
	case errors.Is(err, replay.ErrNotCommitted):
		asked := &gtid.Set{}
		asked.Add(token)
		return notAToken(s.Node.Raft().Committed().Contains(asked)), nil
	case errors.Is(err, replay.ErrPurged):
		return cluster.DidCommit{Outcome: cluster.OutcomeUnknown,
			Reason: "the log does not reach back to the token any more: look into the tables"}, nil
	case err != nil:
		return cluster.DidCommit{}, err
	}
	if ours, err := s.wroteHere(log, f.Epoch, token.UUID); err != nil || !ours {
		return followedToken(f, token), err
	}
	if f.Count == 0 && !state.over(f.Epoch) && s.Node.SessionGone(ctx, f.Place.Epoch, f.Place.Thread) {
		// What it wrote before it ended is committed: look again behind a barrier.
		if _, err := s.passBarrier(ctx); err != nil {
			return cluster.DidCommit{}, err
		}
		if f, err = replay.FollowSession(log, token, ctx.Err); err != nil {
			return cluster.DidCommit{}, err
		}
		if f.Count == 0 {
			return sessionAnswer(f, cluster.OutcomeNotCommitted,
				fmt.Sprintf("connection %d has ended, and has committed nothing after the token", f.Thread)), nil
		}
	}
	switch {
	case f.Count > 0:
		return sessionAnswer(f, cluster.OutcomeCommitted,
			fmt.Sprintf("connection %d committed %d transactions after the token, the last is %s", f.Thread, f.Count, f.Last)), nil
	case state.over(f.Epoch):
		return sessionAnswer(f, cluster.OutcomeNotCommitted, fmt.Sprintf(
			"connection %d has committed nothing after the token, and %s", f.Thread, state.why(f.Epoch))), nil
	}
	return sessionAnswer(f, cluster.OutcomeUnknown, fmt.Sprintf(
		"connection %d has committed nothing after the token yet, and epoch %d goes on: it may be on its way", f.Thread, f.Epoch)), nil
}

func sessionAnswer(s replay.Session, o cluster.Outcome, reason string) cluster.DidCommit {
	answer := cluster.DidCommit{Outcome: o, Reason: reason, Index: s.LastIndex, Epoch: s.Epoch, Connection: s.Thread, Count: s.Count}
	for _, id := range s.GTIDs {
		answer.GTIDs = append(answer.GTIDs, id.String())
	}
	if s.Count > 0 {
		answer.Last = s.Last.String()
	}
	return answer
}
