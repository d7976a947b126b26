package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/raft/nodekey"
)

// TestReadersTLS: the port shows what the files hold now, and what they held before where they
// cannot be read. Only where the operator has named none it makes one.
func TestReadersTLS(t *testing.T) {
	var read *tls.Certificate
	var fault error
	newCert := func() *tls.Certificate {
		k, err := nodekey.New()
		if err != nil {
			t.Fatal(err)
		}
		return k.Certificate()
	}
	for _, own := range []bool{false, true} {
		var log strings.Builder
		r := &readersTLS{own: own, logger: slog.New(slog.NewTextHandler(&log, nil)), read: func(context.Context) (*tls.Certificate, error) { return read, fault }}
		read, fault = nil, errors.New("no such file")
		for range 3 {
			r.look(t.Context())
		}
		first := r.Certificate()
		if (first != nil) != own || strings.Count(log.String(), "level=ERROR") != map[bool]int{false: 1, true: 0}[own] {
			t.Errorf("own %t, no file: %v\n%s", own, first, log.String())
		}
		for range 2 {
			read, fault = newCert(), nil
			r.look(t.Context())
			if r.Certificate() != read {
				t.Errorf("own %t: another certificate than that of the file", own)
			}
		}
		fault = errors.New("no such file")
		r.look(t.Context())
		if r.Certificate() != read {
			t.Errorf("own %t: the certificate went with its file", own)
		}
	}
}
