package mysqlwire

import (
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestReadersFirstEvent: a client that asks for no checksums gets the first event without one.
// mysqlbinlog would take the checksum for a part of the file's name.
func TestReadersFirstEvent(t *testing.T) {
	for ask, checksumBytes := range map[string]int{
		"SET @master_binlog_checksum='NONE', @source_binlog_checksum='NONE'": 0,
		"SET @source_binlog_checksum = @@global.binlog_checksum":             binlog.ChecksumBytes,
	} {
		w := binlogtest.New("q.000001")
		format := w.FormatDescription(1)
		log := newReaderLog(Piece{Index: 2, FormatDescription: format}, Piece{Index: 2, Events: binlogtest.Join(w.Rows(1)...)})
		r := dialFeed(t, startReaders(t, log)).loginAs("cdc")
		if got := r.query(ask); got != "OK" {
			t.Fatal(got)
		}
		r.byGTID("", &gtid.Set{}, flagNonBlock)
		payload, err := r.wire.in.next()
		if err != nil {
			t.Fatal(err)
		}
		event := binlog.Event(payload[1:])
		name := string(event[binlog.HeaderBytes+8 : len(event)-checksumBytes])
		if event.Type() != binlog.TypeRotate || int(event.Length()) != len(event) || name != fileName(false, 2) {
			t.Errorf("%s: type %d, %d bytes, %q", ask, event.Type(), event.Length(), name)
		}
		for { // the others have theirs
			if payload, err = r.wire.in.next(); err != nil || isEOF(payload) {
				break
			}
			if err := binlog.VerifyChecksum(binlog.Event(payload[1:])); err != nil {
				t.Errorf("%s: %v", ask, err)
			}
		}
	}
}
