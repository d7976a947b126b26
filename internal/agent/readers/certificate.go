package readers

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"

	"github.com/quorate/quorate/internal/raft/nodekey"
)

// Certificate has the certificate of the readers' port: the one that clients of this node's mysqld see.
type Certificate struct {
	read   func(context.Context) (*tls.Certificate, error)
	own    bool
	logger *slog.Logger

	current atomic.Pointer[tls.Certificate]
	// said is the error that was logged last.
	said string
}

// NewCertificate returns the certificate that read reads. own: the operator has named no files.
func NewCertificate(read func(context.Context) (*tls.Certificate, error), own bool, logger *slog.Logger) *Certificate {
	return &Certificate{read: read, own: own, logger: logger}
}

// Current is what the port shows; nil = nothing, so readers from other hosts are refused.
func (t *Certificate) Current() *tls.Certificate { return t.current.Load() }

// Look reads the files. If they cannot be read, the port keeps what it has. If the operator has
// named no files and mysqld has made none (a logger has no mysqld, a new node's has not started),
// the port makes a certificate: nobody could verify mysqld's own, either.
func (t *Certificate) Look(ctx context.Context) {
	c, err := t.read(ctx)
	before := t.current.Load()
	if err != nil && t.own && before == nil {
		t.logger.Info("the readers' port has a certificate of its own until mysqld has one", "reason", err)
		c, err = madeCertificate()
	}
	switch {
	case ctx.Err() != nil, err != nil && t.own: // what the port has is as good
		return
	case err != nil && err.Error() != t.said:
		t.logger.Error("the readers' port cannot read its certificate: it keeps the previous certificate; without one, readers from other hosts are refused", "error", err)
	case err == nil && (before == nil || !bytes.Equal(before.Certificate[0], c.Certificate[0])):
		t.current.Store(c)
		t.logger.Info("the readers' port has a certificate: readers from other hosts have to use TLS", "subject", c.Leaf.Subject.String(), "ends", c.Leaf.NotAfter)
	}
	t.said = ""
	if err != nil {
		t.said = err.Error()
	}
}

// madeCertificate makes a certificate in the form of a node's. It belongs to no node, and is not kept.
func madeCertificate() (*tls.Certificate, error) {
	k, err := nodekey.New()
	if err != nil {
		return nil, err
	}
	return k.Certificate(), nil
}
