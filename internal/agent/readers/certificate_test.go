package readers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/raft/nodekey"
)

// TestCertificate: the port shows what the files hold now, or what they held before if they cannot be read. It makes
// a certificate only if the operator has named none.
func TestCertificate(t *testing.T) {
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
		r := NewCertificate(func(context.Context) (*tls.Certificate, error) { return read, fault }, own, slog.New(slog.NewTextHandler(&log, nil)))
		read, fault = nil, errors.New("no such file")
		for range 3 {
			r.Look(t.Context())
		}
		first := r.Current()
		if (first != nil) != own || strings.Count(log.String(), "level=ERROR") != map[bool]int{false: 1, true: 0}[own] {
			t.Errorf("own %t, no file: %v\n%s", own, first, log.String())
		}
		for range 2 {
			read, fault = newCert(), nil
			r.Look(t.Context())
			if r.Current() != read {
				t.Errorf("own %t: another certificate than that of the file", own)
			}
		}
		fault = errors.New("no such file")
		r.Look(t.Context())
		if r.Current() != read {
			t.Errorf("own %t: the certificate went with its file", own)
		}
	}
}
