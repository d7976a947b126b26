package ship

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
)

// sure makes sure that the piece which the next one follows is whole: a killed command may have left a part of it
// under its name. If it is not whole, sure stores it again. An encrypted piece cannot be read here, so it is stored
// again before a piece follows it. The cutter checks only a piece that it found in the repository: it knows that its
// own pieces are whole.
func (k *cutter) sure(ctx context.Context) error {
	p := k.behind
	if p.Last == 0 || k.c.Store.Whole() {
		return nil
	}
	broken := error(nil)
	if !k.unreadable {
		broken = wholePiece(ctx, k.c.Store, k.head.ClusterID, p)
		k.unreadable = errors.Is(broken, repository.ErrEncrypted)
	}
	switch {
	case k.unreadable && k.piece.First == 0 && !k.full:
		return nil
	case broken == nil && !k.unreadable:
	case !k.unreadable && !Damaged(broken):
		return broken // it could not be checked
	default:
		err := k.again(ctx, p)
		if errors.Is(err, ErrGap) && !k.unreadable {
			return fmt.Errorf("%w; the nodes have that part of the log no more: delete this object, and take a full backup (quorate backup)", broken)
		}
		if err != nil && !errors.Is(err, ErrGap) { // else nobody can check it or store it again
			return err
		}
	}
	k.behind = archive.Piece{}
	return nil
}

// wholePiece reads a piece to its end.
func wholePiece(ctx context.Context, store repository.Store, clusterID string, p archive.Piece) error {
	chain := NewChain(ctx, store, nil, clusterID, archive.Contents{Pieces: []archive.Piece{p}}, p.First)
	defer func() { _ = chain.Close() }()
	for {
		_, err := chain.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(chain.Unread()...)
		}
		if err != nil {
			return err
		}
	}
}

// again stores a piece again under its name, from the log.
func (k *cutter) again(ctx context.Context, p archive.Piece) error {
	log, err := k.agent.Log(ctx, p.First)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	in, err := archive.NewReader(log)
	if err != nil {
		return err
	}
	anew := &cutter{c: k.c, head: in.Head()}
	anew.c.Beside = false
	defer func() { _ = anew.close() }()
	for {
		item, err := in.Next()
		switch {
		case err != nil:
			return err
		case item.Entry.Index == 0:
			continue
		}
		if err := anew.put(item); err != nil {
			return err
		}
		if item.Entry.Index < p.Last {
			continue
		}
		if !sameEntry(p, item.Entry) {
			return fmt.Errorf("entry %d: %w", p.Last, ErrHistory)
		}
		anew.piece = p
		return anew.ship(ctx)
	}
}
