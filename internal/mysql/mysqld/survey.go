package mysqld

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/install"
)

// surveyBufferPool is enough to read the data dictionary. The operator's value may be most of
// the host's memory.
const surveyBufferPool = "128M"

// surveyStopTimeout bounds the stop of the surveying server, which has nothing to write.
const surveyStopTimeout = 20 * time.Second

// Survey starts a server on a data directory that is not quorate's, reads the facts of type
// Survey, and stops the server. The server is read-only down to InnoDB, has no network, and asks
// for no password: only this account and mysqld's can reach its socket. In dir it changes only
// its temporary tablespace (ibtmp1). The caller must hold the data (HoldData). It returns
// ErrUnclean for data whose server was not shut down in order.
func (c Config) Survey(ctx context.Context, dir string) (s Survey, err error) {
	id, err := c.identity()
	if err != nil {
		return s, err
	}
	scratch, err := os.MkdirTemp("", "quorate-adopt-")
	if err != nil {
		return s, fmt.Errorf("look at the data: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	config := filepath.Join(scratch, "my.cnf")
	tmp := filepath.Join(scratch, "tmp")
	err = errors.Join(os.Mkdir(tmp, 0o700), os.WriteFile(config, []byte(c.renderSurvey(id.uid == 0, dir, scratch)), 0o600))
	if err == nil {
		err = handOver(id, scratch, config, tmp)
	}
	if err != nil {
		return s, fmt.Errorf("look at the data: %w", err)
	}
	p, err := c.spawnSurvey(id, config)
	if err != nil {
		return s, err
	}
	defer p.end()
	db, err := openSurvey(filepath.Join(scratch, "s.sock"))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := p.await(ctx, db); err != nil {
		return s, err
	}
	return readSurvey(ctx, db)
}

// handOver gives a directory and its content to mysqld's account, the directory last: in a directory of its own the
// account can replace a file, for example by a link to a file of root.
func handOver(id osIdentity, dir string, content ...string) error {
	for _, path := range append(content, dir) {
		if err := os.Lchown(path, id.uid, id.gid); err != nil {
			return err
		}
	}
	return nil
}

// renderSurvey returns the option file of the surveying server.
func (c Config) renderSurvey(asRoot bool, dir, scratch string) string {
	var b strings.Builder
	b.WriteString("[mysqld]\n")
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) { // some decide how the data are read
		if !strings.Contains(name, ".") {
			writeOption(&b, name, c.Variables[name])
		}
	}
	if asRoot {
		writeOption(&b, "user", "root")
	}
	b.WriteString(c.installationOptions())
	tmp := filepath.Join(scratch, "tmp")
	for _, o := range [][2]string{
		{"datadir", dir}, {"tmpdir", tmp}, {"replica_load_tmpdir", tmp}, {"innodb_temp_tablespaces_dir", tmp},
		{"socket", filepath.Join(scratch, "s.sock")}, {"pid_file", filepath.Join(scratch, "s.pid")},
		{"relay_log", filepath.Join(tmp, "relay")}, {"relay_log_index", filepath.Join(tmp, "relay.index")},
		{"log_error_services", "log_filter_internal;log_sink_internal"}, {"log_error_verbosity", "2"},
		// The operator may have set variables of these plugins.
		{"plugin_load_add", "rpl_semi_sync_source=semisync_source.so"}, {"plugin_load_add", "clone=mysql_clone.so"},
		{"innodb_read_only", "ON"}, {"innodb_buffer_pool_size", surveyBufferPool}, {"innodb_buffer_pool_load_at_startup", "OFF"},
		{"innodb_buffer_pool_dump_at_shutdown", "OFF"},
		{"skip_log_bin", "ON"}, {"gtid_mode", "ON"}, {"enforce_gtid_consistency", "ON"}, {"server_id", "1"},
		{"super_read_only", "ON"}, {"event_scheduler", "OFF"}, {"skip_replica_start", "ON"}, {"persisted_globals_load", "OFF"},
		{"loose_group_replication_start_on_boot", "OFF"}, // the data may have the plugin by INSTALL PLUGIN
		{"skip_grant_tables", "ON"}, {"skip_networking", "ON"}, {"loose_mysqlx", "OFF"}, {"secure_file_priv", "NULL"},
		{"auto_generate_certs", "OFF"}, {"loose_sha256_password_auto_generate_rsa_keys", "OFF"},
		{"caching_sha2_password_auto_generate_rsa_keys", "OFF"},
	} {
		writeOption(&b, o[0], o[1])
	}
	return b.String()
}

// surveyor is the surveying server.
type surveyor struct {
	cmd  *exec.Cmd
	out  *tailWriter
	done chan struct{}
}

// spawnSurvey starts the surveying server. It dies with this process.
func (c Config) spawnSurvey(id osIdentity, config string) (*surveyor, error) {
	argv := append(c.Installation.MysqldArgv(), "--defaults-file="+config)
	p := &surveyor{cmd: exec.Command(argv[0], argv[1:]...), out: &tailWriter{}, done: make(chan struct{})}
	p.cmd.Env = childEnv(os.Environ())
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: id.credential}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The child is killed when the thread ends that has spawned it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := install.WithoutNetCapabilities(p.cmd.Start)
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start mysqld to look at the data: %w", err)
	}
	return p, nil
}

// await waits until the server answers.
func (p *surveyor) await(ctx context.Context, db *sql.DB) error {
	tick := time.NewTicker(readyPollInterval)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.problem()
		case <-ctx.Done():
			return fmt.Errorf("wait for mysqld: %w (last try: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// problem says why the server ended by itself.
func (p *surveyor) problem() error {
	text := p.out.String()
	if strings.Contains(text, "MY-012561") { // ER_IB_MSG_736: recovery is needed, and nothing may be written
		return ErrUnclean
	}
	var said []string
	for line := range strings.Lines(text) {
		if l := parseLogLine(strings.TrimSpace(line)); l.priority == "ERROR" {
			said = append(said, l.text)
		}
	}
	return fmt.Errorf("mysqld does not start on the data, read-only: %s", cmp.Or(strings.Join(said, "; "), tailOf(text)))
}

// end stops the server, in order if possible: it then removes its own temporary files.
func (p *surveyor) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timeout := time.NewTimer(surveyStopTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-timeout.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func openSurvey(socket string) (*sql.DB, error) {
	cfg := socketConfig(socket, "root", "")
	cfg.Params = map[string]string{"sql_mode": "''", "max_execution_time": "0", "sql_big_selects": "1"}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("look at the data: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// tailBytesMax is how many last bytes of a server's output are kept.
const tailBytesMax = 64 << 10

// tailWriter keeps the end of what is written to it.
type tailWriter struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (w *tailWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-tailBytesMax):]
	return len(p), nil
}

// String returns what is kept.
func (w *tailWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
