package mysqlwire

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/quorate/quorate/internal/raft/entry"
)

// readersName is the name in the certificate of the readers' ports.
const readersName = "readers.test"

// newCertificate makes a certificate that is its own CA.
func newCertificate(t testing.TB) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{readersName}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

// elsewhere is a listener whose clients all seem to come from another host.
type elsewhere struct{ net.Listener }

type elsewhereConn struct{ net.Conn }

func (l elsewhere) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return elsewhereConn{conn}, err
}

func (elsewhereConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40000}
}

// startTLSReaders runs a feed whose readers come from another host if far is set. now has its
// present certificate.
func startTLSReaders(t *testing.T, log ReaderSource, far bool, now *atomic.Pointer[tls.Certificate]) *Feed {
	t.Helper()
	feed := newTLSReaders(t, log, now)
	if far {
		feed.listener = elsewhere{feed.listener}
	}
	runReaders(t, feed)
	return feed
}

func newTLSReaders(t *testing.T, log ReaderSource, now *atomic.Pointer[tls.Certificate]) *Feed {
	t.Helper()
	cfg := readersConfig(log, cdcAccounts()...)
	cfg.Readers.Certificate = now.Load
	feed, err := NewFeed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := feed.Listen(); err != nil {
		t.Fatal(err)
	}
	return feed
}

func runReaders(t *testing.T, feed *Feed) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("feed ended with %v", err)
		}
	})
}

// connectTLS logs cdc in with go-mysql's client.
func connectTLS(feed *Feed, c *tls.Config) (*client.Conn, error) {
	return client.Connect(feed.Addr().String(), "cdc", "cdc's secret", "", func(conn *client.Conn) error {
		conn.SetTLSConfig(c)
		return nil
	})
}

// A reader of another host gets in with TLS only; a reader of this host may choose.
func TestReadersOfOtherHostsNeedTLS(t *testing.T) {
	cert, roots := newCertificate(t)
	var now atomic.Pointer[tls.Certificate]
	now.Store(cert)
	for _, far := range []bool{false, true} {
		feed := startTLSReaders(t, samples(t), far, &now)
		err := login(dialFeed(t, feed).wire, "cdc", "cdc's secret")
		if e, is := errors.AsType[*ServerError](err); !far && err != nil || far && (!is || e.Code != 3159 || !strings.Contains(e.Message, "SOURCE_SSL=1")) {
			t.Errorf("far %t, without TLS: %v", far, err)
		}
		// The client does not even learn whether the password is right.
		if err := login(dialFeed(t, feed).wire, "nobody", "wrong"); far != strings.Contains(err.Error(), "3159") {
			t.Errorf("far %t, a wrong password: %v", far, err)
		}
		conn, err := connectTLS(feed, &tls.Config{RootCAs: roots, ServerName: readersName})
		if err != nil {
			t.Fatalf("far %t, with TLS: %v", far, err)
		}
		if _, err := conn.Execute("SHOW BINARY LOGS"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		if _, err := connectTLS(feed, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: readersName}); err == nil {
			t.Error("the certificate passes without its CA")
		}
		waitUntil(t, "what was refused", func() bool { return feed.Stats().Refused == map[bool]uint64{false: 1, true: 2}[far] })
	}
}

// The feed uses the present certificate; without one it does not offer TLS.
func TestReadersCertificateChanges(t *testing.T) {
	var now atomic.Pointer[tls.Certificate]
	feed := startTLSReaders(t, samples(t), true, &now)
	insecure := &tls.Config{InsecureSkipVerify: true}
	if _, err := connectTLS(feed, insecure); err == nil || !strings.Contains(err.Error(), "does not support TLS") {
		t.Errorf("without a certificate: %v", err)
	}
	var shown []*x509.Certificate
	for range 2 {
		cert, roots := newCertificate(t)
		now.Store(cert)
		conn, err := connectTLS(feed, &tls.Config{RootCAs: roots, ServerName: readersName, VerifyConnection: func(s tls.ConnectionState) error {
			shown = append(shown, s.PeerCertificates[0])
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if len(shown) != 2 || shown[0].Equal(shown[1]) {
		t.Errorf("%d certificates", len(shown))
	}
}

// Bytes in clear behind a request for TLS are never taken for a packet.
func TestReadersTakeNothingInClearBehindTheRequestForTLS(t *testing.T) {
	cert, _ := newCertificate(t)
	var now atomic.Pointer[tls.Certificate]
	now.Store(cert)
	for name, tc := range map[string]struct {
		offered bool
		length  int
	}{"a login": {true, sslRequestBytes}, "no offer": {false, sslRequestBytes}, "another length": {true, sslRequestBytes + 1}} {
		if now.Store(nil); tc.offered {
			now.Store(cert)
		}
		feed := startTLSReaders(t, samples(t), false, &now)
		r := dialFeed(t, feed)
		greeting, err := r.wire.read()
		if err != nil {
			t.Fatal(err)
		}
		nonce, err := parseGreeting(greeting)
		if err != nil {
			t.Fatal(err)
		}
		request := binary.LittleEndian.AppendUint32(nil, capsOurs|capSSL)
		request = append(request, make([]byte, tc.length-len(request))...)
		if err := r.wire.write(request, loginResponse("cdc", scramble("cdc's secret", nonce))); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(r.wire.conn) // an alert, or nothing
		if len(answer) > 7 || feed.Stats().ConnectionsTotal != 0 {
			t.Errorf("%s: %x", name, answer)
		}
	}
}

// go-mysql's reader gets the same over TLS as without.
func TestReadersServeGoMySQLOverTLS(t *testing.T) {
	cert, roots := newCertificate(t)
	var now atomic.Pointer[tls.Certificate]
	now.Store(cert)
	feed := startTLSReaders(t, samples(t), true, &now)
	sessions := tls.NewLRUClientSessionCache(1)
	for range 2 { // the second resumes the first one's session
		syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
			ServerID: 77, Flavor: mysql.MySQLFlavor, Host: "127.0.0.1", Port: uint16(feed.Addr().(*net.TCPAddr).Port),
			User: "old", Password: "cdc's secret", HeartbeatPeriod: time.Second, VerifyChecksum: true, RawModeEnabled: true,
			TLSConfig: &tls.Config{RootCAs: roots, ServerName: readersName, ClientSessionCache: sessions}, Logger: testLogger(),
		})
		set, _ := mysql.ParseMysqlGTIDSet("")
		stream, err := syncer.StartSyncGTID(set)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		for xids := 0; xids < 9; {
			event, err := stream.GetEvent(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if event.Header.EventType == replication.XID_EVENT {
				xids++
			}
		}
		cancel()
		syncer.Close()
	}
	waitUntil(t, "the end of the dumps", func() bool { return feed.Stats().Connections == 0 })
}

// mysqlbinlog and a stock replica read over TLS, and verify the certificate. Both are refused
// without, and the replica goes on once it is told to use it.
func TestReadersServeMySQLOverTLS(t *testing.T) {
	source := startMysqld(t, 1, append(sourceOptions(), "--binlog-transaction-compression=OFF")...)
	source.createTapUser(t)
	c := runTap(t, source, nil)
	source.exec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)",
		"INSERT INTO d.t (v) VALUES ('one')", "INSERT INTO d.t (v) VALUES (REPEAT('x', 17000000))", "INSERT INTO d.t (v) VALUES ('two')")
	log := newReaderLog(Piece{Index: 2, FormatDescription: c.tap.FormatDescription()})
	for i, b := range c.received() {
		_, body, err := entry.Parse(b.Data)
		if err != nil {
			t.Fatal(err)
		}
		log.add(Piece{Index: uint64(3 + i), Events: body})
	}
	cert, _ := newCertificate(t)
	var now atomic.Pointer[tls.Certificate]
	now.Store(cert)
	feed := startTLSReaders(t, log, true, &now)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644); err != nil {
		t.Fatal(err)
	}

	argv, err := findMySQL(t).MysqlbinlogArgv()
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]string{"DISABLED": "prohibited", "REQUIRED": "", "VERIFY_CA": "", "VERIFY_IDENTITY": "certificate verify failed"} {
		args := append(argv[1:len(argv):len(argv)], "--read-from-remote-server", "--host=127.0.0.1", fmt.Sprintf("--port=%d", feed.Addr().(*net.TCPAddr).Port),
			"--user=cdc", "--password=cdc's secret", "--ssl-mode="+mode, "--ssl-ca="+ca, "--to-last-log", "quorate.00000000000000000002")
		out, err := exec.Command(argv[0], args...).CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) || want == "" && !bytes.Contains(out, []byte("CREATE DATABASE d")) {
			t.Errorf("mysqlbinlog --ssl-mode=%s: %v\n%.600s", mode, err, out)
		}
	}

	replica := startMysqld(t, 3, replicaOptions()...)
	follow := func(ssl string) {
		replica.exec(t, "STOP REPLICA", fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='cdc', "+
			"SOURCE_PASSWORD='cdc''s secret', SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=1000, SOURCE_HEARTBEAT_PERIOD=0.1, %s",
			feed.Addr().(*net.TCPAddr).Port, ssl), "START REPLICA")
	}
	follow("SOURCE_SSL=0")
	waitUntil(t, "the replica is refused", func() bool { return strings.Contains(replica.replicaErrors(t), "insecure transport are prohibited") })
	follow(fmt.Sprintf("SOURCE_SSL=1, SOURCE_SSL_CA='%s'", ca))
	want := source.executed(t)
	waitUntil(t, "the replica applies "+want.String(), func() bool { return replica.executed(t).Equal(want) })
	waitUntil(t, "heartbeats", func() bool {
		return replica.text(t, "SELECT COUNT_RECEIVED_HEARTBEATS >= 3 FROM performance_schema.replication_connection_status") == "1"
	})
	if complaint := replica.replicaErrors(t); complaint != "" {
		t.Error(complaint)
	}
}
