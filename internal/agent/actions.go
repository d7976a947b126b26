package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// actions are the requests for what operators do to nodes.
func (a *Agent) actions() map[string]operate.Handler {
	return map[string]operate.Handler{
		"log.purge": {Audited: true, Timeout: purgeTimeout, Run: operate.Typed(a.controlPurge)},
		// These two tell how far the archive has got that is shipped from here, and when the newest full backup was
		// taken. Taken from another node, they would hide that the archive of this node has stopped.
		cluster.ArchiveReached: {Here: true, Run: noted(func(args cluster.ArchiveReachedRequest) { a.backups.Reached(args.Index) })},
		cluster.FullNewest:     {Here: true, Run: noted(func(args cluster.FullNewestRequest) { a.backups.NoteFull(args.At) })},
		"mysqld.installed":     {OnNode: true, Run: operate.Typed(a.controlInstalled)},
		"sessions":             {OnNode: true, Run: operate.Typed(a.controlSessions)},
		"secrets.rotate":       {Audited: true, Run: a.controlSecretsRotate},
	}
}

// controlSecretsRotate makes new internal passwords for this node. Its agent's next start
// takes them: a mysqld that is read-only lets nobody change an account while it runs.
func (a *Agent) controlSecretsRotate(_ context.Context, r control.Request) (operate.Done, error) {
	d := operate.Done{What: "rotate the secrets of " + a.self.Name, Result: cluster.SecretsRotated{Node: a.self.Name}}
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return d, err
	}
	if !a.runsMysqld() {
		return d, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	}
	return d, mysqld.RotateSecrets(vfs.OS{}, a.data.Join(secretsFile))
}

// controlInstalled says which mysqld the next start would take.
func (a *Agent) controlInstalled(ctx context.Context, r control.Request, args cluster.InstalledRequest) (operate.Done, error) {
	if !a.runsMysqld() {
		return operate.Done{}, control.Errorf(control.CodeInvalid, "node %s is a logger: it has no mysqld", a.self.Name)
	}
	found := cluster.Installed{Node: a.self.Name, NativePassword: nativePassword(a.cfg.MySQL.Variables)}
	in, err := mysqld.Discover(a.cfg.MySQL.BaseDir, a.cfg.MySQL.User)
	if err != nil {
		return operate.Done{}, fmt.Errorf("find mysqld: %w", err)
	}
	found.Version = in.Version.String()
	// An unreadable version counts as not known: before 8.4 that happens.
	if v, err := mysqld.New(mysqld.Config{DataDir: a.data.Join("mysql")}).DataVersion(); err == nil && v != (install.Version{}) {
		found.Data = v.String()
	}
	if p := a.currentProcess(); p != nil && a.board.Own().Role == status.RolePrimary {
		if found.NativeAccounts, err = p.Admin().LogsInWith(ctx, mysqld.NativePassword); err != nil {
			return operate.Done{}, err
		}
	}
	return operate.Done{Result: found, ReadOnly: true}, nil
}

// nativePassword tells whether these settings turn mysql_native_password on.
func nativePassword(variables map[string]string) bool {
	for name, value := range variables {
		if strings.TrimPrefix(cluster.VariableName(name), "loose_") == mysqld.NativePassword {
			return slices.Contains([]string{"ON", "1", "FORCE", "FORCE_PLUS_PERMANENT"}, strings.ToUpper(value))
		}
	}
	return false
}
