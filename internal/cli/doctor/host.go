package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/netfence"
	"github.com/quorate/quorate/internal/mysql/install"
)

func (h Host) isLogger() bool { return h.Config.Self().Kind == cluster.KindLogger }

// mysql looks at the installation, and at the server if it runs.
func (h Host) mysql() []cluster.Check {
	if h.isLogger() {
		return []cluster.Check{{Subject: "MySQL", State: cluster.CheckOK, Found: "a logger needs none"}}
	}
	in, err := h.Discover()
	if err != nil {
		return []cluster.Check{{Subject: "MySQL", State: cluster.CheckFail, Found: err.Error(), Do: fmt.Sprintf("install MySQL %v or later, or set mysql.base_dir", install.VersionMin())}}
	}
	c := cluster.Check{Subject: "MySQL", State: cluster.CheckOK, Found: fmt.Sprintf("%v, %s, semi-sync and clone plugins", in.Version, in.Mysqld)}
	if _, err := os.Stat(filepath.Join(in.PluginDir, "mysql_clone.so")); err != nil {
		c.State, c.Found = cluster.CheckWarn, fmt.Sprintf("%v, %s, without mysql_clone.so", in.Version, in.Mysqld)
		c.Do = "install the clone plugin: mysqld would not start without it"
		if errors.Is(err, fs.ErrNotExist) {
			c.State = cluster.CheckFail
		}
	}
	checks := []cluster.Check{c}
	if hasCapabilities(in.Mysqld) {
		checks = append(checks, cluster.Check{Subject: "mysqld's program", State: cluster.CheckWarn,
			Found: in.Mysqld + " has capabilities of its own (setcap): the kernel does not kill mysqld with the agent",
			Do:    "setcap -r " + in.Mysqld + ". Under systemd the unit's KillMode=mixed kills it all the same"})
	}
	n := h.self()
	switch {
	case n == nil:
	case n.ServerVersion != "" && !strings.HasPrefix(n.ServerVersion, in.Version.String()):
		checks = append(checks, cluster.Check{Subject: "mysqld", State: cluster.CheckWarn, Found: fmt.Sprintf("%s runs, and %v is installed", n.ServerVersion, in.Version),
			Do: "restart the agent to run what is installed; for an upgrade of MySQL: quorate upgrade plan"})
	case n.Mysqld != status.MysqldRunning:
		checks = append(checks, cluster.Check{Subject: "mysqld", State: cluster.CheckWarn, Found: fmt.Sprintf("it does not run: %s", n.Role), Do: "quorate status says why"})
	default:
		checks = append(checks, cluster.Check{Subject: "mysqld", State: cluster.CheckOK, Found: fmt.Sprintf("runs, pid %d, as %s", n.MysqldPID, n.Role)})
	}
	if h.Agent != nil {
		if zones := h.Agent.TimeZones(); zones != "" {
			checks = append(checks, cluster.Check{Subject: "time zones", State: cluster.CheckWarn, Found: zones, Do: status.TimeZonesRemedy})
		}
		if names := h.Agent.TableNames(); names != "" {
			checks = append(checks, cluster.Check{Subject: "table names", State: cluster.CheckWarn, Found: names, Do: status.TableNamesRemedy})
		}
	}
	return checks
}

// hasCapabilities tells whether a program has capabilities of its own. When a process executes such a program, the
// kernel clears its parent-death signal (prctl(2), PR_SET_PDEATHSIG).
func hasCapabilities(program string) bool {
	n, err := unix.Getxattr(program, "security.capability", nil)
	return err == nil && n > 0
}

// clock looks whether the wall clock is kept by NTP, and whether it is set while others measure.
func (h Host) clock(ctx context.Context) []cluster.Check {
	offset := func() time.Duration { return time.Duration(time.Now().UnixNano()) - bootTime() }
	before := offset()
	pause := time.NewTimer(measureTime / 2)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
	step := offset() - before
	var t unix.Timex // modes 0: it is only read
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return []cluster.Check{unseen("clock", fmt.Errorf("read the kernel's clock: %w", err))}
	}
	const timeError, unsynchronised = 5, 0x40 // TIME_ERROR, STA_UNSYNC of timex.h
	return checkClock(state != timeError && t.Status&unsynchronised == 0, step)
}

// bootTime is a clock that nobody sets, and that goes on while the machine sleeps.
func bootTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // the kernel has it since 2.6.39
	return time.Duration(t.Nano())
}

// fence tries whether the kernel could fence mysqld's own port.
func (h Host) fence() cluster.Check {
	c := cluster.Check{Subject: "mysqld's own port", State: cluster.CheckOK}
	bind, err := netip.ParseAddr(h.Config.MySQL.Bind)
	wanted, stale := err == nil && !bind.IsLoopback() && !h.isLogger(), h.Config.MySQL.BindUnfencedStaleReads
	if n := h.self(); n != nil && n.MysqldPort != "" && !stale {
		c.Found = "the agent has it open, and fences it"
		return c
	}
	// An address of RFC 5737, which nobody has: no packet is judged by these rules.
	nobody := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 9)
	f, err := netfence.Open(netfence.Config{Table: fmt.Sprintf("quorate-doctor-%d", os.Getpid()), Server: nobody}, bootTime)
	switch {
	case err == nil:
		_ = f.Close()
		c.Found = "the kernel can fence it (mysql.bind)"
	case errors.Is(err, netfence.ErrNotAllowed):
		c.State, c.Found = cluster.CheckUnknown, fmt.Sprintf("whether the kernel can fence it was not looked at: uid %d has no CAP_NET_ADMIN", os.Geteuid())
	default:
		c.Found = fmt.Sprintf("the kernel cannot fence it: %v", err)
		if wanted {
			c.State, c.Do = cluster.CheckWarn, "clients reach mysqld through the router only; "+fenceRemedy
		}
		if wanted && stale {
			c.Do = "it is open unfenced (mysql.bind_unfenced_stale_reads): while this node is frozen or cut off, reads there are stale; " + fenceRemedy
		}
	}
	return c
}

const fenceRemedy = "take mysql.bind out, or load nf_tables, nft_ct, nft_nat, nft_redir and nft_reject"

// confinement looks for rules of the kernel that keep mysqld from its files.
func (h Host) confinement() (checks []cluster.Check) {
	n := h.self()
	if n != nil && n.Mysqld == status.MysqldRunning || h.isLogger() {
		return nil // it runs: nothing keeps it
	}
	if enforcing, err := os.ReadFile(h.Root + "/sys/fs/selinux/enforce"); err == nil && strings.TrimSpace(string(enforcing)) == "1" {
		checks = append(checks, cluster.Check{Subject: "SELinux", State: cluster.CheckWarn, Found: "enforcing",
			Do: fmt.Sprintf("semanage fcontext -a -t mysqld_db_t '%s/(mysql|seed)(/.*)?'; restorecon -R %s", h.Config.DataDir, h.Config.DataDir)})
	}
	enabled, err := os.ReadFile(h.Root + "/sys/module/apparmor/parameters/enabled")
	if err != nil || strings.TrimSpace(string(enabled)) != "Y" {
		return checks
	}
	const profile = "usr.sbin.mysqld"
	if _, err := os.Lstat(h.Root + "/etc/apparmor.d/disable/" + profile); err == nil {
		return checks
	}
	text, err := os.ReadFile(h.Root + "/etc/apparmor.d/" + profile)
	local, _ := os.ReadFile(h.Root + "/etc/apparmor.d/local/" + profile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checks
	case err != nil:
		return append(checks, unseen("AppArmor", err))
	case strings.Contains(string(text)+string(local), strings.TrimSuffix(h.Config.DataDir, "/")+"/"):
		return append(checks, cluster.Check{Subject: "AppArmor", State: cluster.CheckOK, Found: "the profile " + profile + " names data_dir"})
	}
	return append(checks, cluster.Check{Subject: "AppArmor", State: cluster.CheckWarn, Found: "the profile " + profile + " does not name data_dir",
		Do: fmt.Sprintf("add \"%s/** rwk,\" to /etc/apparmor.d/local/%s, and apparmor_parser -r /etc/apparmor.d/%s", h.Config.DataDir, profile, profile)})
}

// limits looks how many files mysqld may open, or the shell from which this is run.
func (h Host) limits() []cluster.Check {
	if n := h.self(); n != nil && n.MysqldPID > 0 {
		text, err := os.ReadFile(fmt.Sprintf("%s/proc/%d/limits", h.Root, n.MysqldPID))
		if err != nil {
			return []cluster.Check{unseen("open files", err)}
		}
		if soft, hard, ok := filesOf(string(text)); ok {
			return []cluster.Check{checkFiles("mysqld", soft, hard)}
		}
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return []cluster.Check{unseen("open files", err)}
	}
	return []cluster.Check{checkFiles("a process of this shell", max(l.Cur, l.Max), l.Max)} // Go raises its own
}

// filesOf reads the limit on open files of /proc/PID/limits.
func filesOf(text string) (soft, hard uint64, ok bool) {
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, "Max open files"); is {
			f := strings.Fields(rest)
			if len(f) < 2 {
				return 0, 0, false
			}
			soft, errSoft := strconv.ParseUint(f[0], 10, 64)
			hard, errHard := strconv.ParseUint(f[1], 10, 64)
			return soft, hard, errSoft == nil && errHard == nil
		}
	}
	return 0, 0, false
}

// memory looks at what may have a process wait for memory. What does not matter is not named.
func (h Host) memory() (checks []cluster.Check) {
	read := func(path string) string {
		text, _ := os.ReadFile(h.Root + path)
		return strings.TrimSpace(string(text))
	}
	if c, bad := checkHugePages(read("/sys/kernel/mm/transparent_hugepage/enabled"), read("/sys/kernel/mm/transparent_hugepage/defrag")); bad {
		checks = append(checks, c)
	}
	swappiness, err := strconv.Atoi(read("/proc/sys/vm/swappiness"))
	if err != nil {
		return checks
	}
	for line := range strings.Lines(read("/proc/meminfo")) {
		if rest, is := strings.CutPrefix(line, "SwapTotal:"); is {
			kib, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
			if c, bad := checkSwap(kib<<10, swappiness); bad {
				checks = append(checks, c)
			}
		}
	}
	return checks
}
