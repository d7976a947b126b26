package variables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// refusalBytesMax is how much is kept of why a server did not start.
const refusalBytesMax = 400

// doubt stands for a value that the server may or may not have. No real value has a control character.
const doubt = "\x00"

// Server is a mysqld that runs.
type Server interface {
	// SetGlobal fails with mysqld.ErrAtStart, or a *mysqld.RefusedError that says whether it always
	// will.
	SetGlobal(ctx context.Context, name, value string) error
	ResetGlobal(ctx context.Context, name string) error
	ReloadTLS(ctx context.Context, names []string) error
}

// Trier is a mysqld that runs. It may be left with values that it was only to try: then it says so
// with a *mysqld.PutBackError.
type Trier interface {
	TryGlobals(ctx context.Context, values map[string]string) (atStart []string, made map[string]string, err error)
}

// Keeper keeps one node's mysqld at the cluster's variables.
type Keeper struct {
	node string
	// own are the variables in the configuration.
	own map[string]string

	mu          sync.Mutex
	incarnation uint64
	// started are the cluster's variables with which that incarnation was started; has also has
	// those that it was given since. atStart are those that it takes only at a start.
	started, has map[string]string
	atStart      map[string]bool
	failed       map[string]string
	// without says why that incarnation was started without the cluster's variables, and gets none
	// of them; "" = it was started with them.
	without string
}

// New makes a Keeper of the node of that name, whose configuration sets some variables.
func New(node string, own map[string]string) *Keeper { return &Keeper{node: node, own: own} }

// Legal are those of the cluster's variables that this quorate lets an operator set: a newer
// quorate may have agreed on others.
func Legal(want map[string]string) map[string]string {
	legal := maps.Clone(want)
	maps.DeleteFunc(legal, func(name, value string) bool { return mysqld.CheckGlobal(name, value) != nil })
	return legal
}

// Started takes a new incarnation of mysqld, which was started with variables of the cluster; or
// without them, because it did not start with them (the error without).
func (k *Keeper) Started(incarnation uint64, with map[string]string, without error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.incarnation, k.started, k.has = incarnation, maps.Clone(with), maps.Clone(with)
	k.atStart, k.failed, k.without = map[string]bool{}, map[string]string{}, ""
	if k.has == nil {
		k.has = map[string]string{}
	}
	if without != nil {
		k.without = strings.ToValidUTF8(fmt.Sprintf("%.*s", refusalBytesMax, without), "")
	}
}

// Keep has the server of an incarnation run with variables, as far as it takes them while it runs.
func (k *Keeper) Keep(ctx context.Context, incarnation uint64, want map[string]string, s Server) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if incarnation != k.incarnation {
		return // it does not run yet, or no longer
	}
	if k.without != "" {
		want = nil
	}
	var tls []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value := want[name]
		if is, known := k.has[name]; known && is == value {
			continue
		}
		err := mysqld.CheckGlobal(name, value)
		if err == nil {
			err = s.SetGlobal(ctx, name, value)
		}
		if k.note(name, err) {
			k.has[name] = value
		}
		if err == nil && mysqld.NeedsReloadTLS(name) {
			tls = append(tls, name)
		}
	}
	maps.DeleteFunc(k.failed, func(name, _ string) bool { return !has(want, name) && !has(k.has, name) }) // nobody asks for it any more
	for _, name := range slices.Sorted(maps.Keys(k.has)) {
		if has(want, name) {
			continue
		}
		var err error
		if value, _, known := mysqld.Own(k.own, name); known {
			err = s.SetGlobal(ctx, name, value)
		} else {
			err = s.ResetGlobal(ctx, name)
		}
		if k.note(name, err) {
			delete(k.has, name)
		}
		if err == nil && mysqld.NeedsReloadTLS(name) {
			tls = append(tls, name)
		}
	}
	k.reloadTLS(ctx, tls, s)
}

func has(values map[string]string, name string) bool { _, is := values[name]; return is }

// reloadTLS makes mysqld use the TLS variables that were set. It is done once all of them are set,
// as one of them may fit only with the others.
func (k *Keeper) reloadTLS(ctx context.Context, names []string, s Server) {
	if len(names) == 0 {
		return
	}
	err := s.ReloadTLS(ctx, names)
	if err == nil {
		return
	}
	for _, name := range names {
		k.note(name, err)
		k.has[name] = doubt // so that it is tried again: a file of TLS may have been mended
	}
}

// Try has the server of an incarnation say whether it takes values. What it may be left with is
// set again at the next Keep. No Keep runs meanwhile: what that sets would be put back, too.
func (k *Keeper) Try(ctx context.Context, incarnation uint64, values map[string]string, s Trier) (atStart []string, made map[string]string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	atStart, made, err = s.TryGlobals(ctx, values)
	if left, is := errors.AsType[*mysqld.PutBackError](err); is && incarnation == k.incarnation {
		for _, name := range left.Names {
			k.has[name] = doubt
		}
	}
	return atStart, made, err
}

// note takes what became of one variable. done: there is no use in trying again.
func (k *Keeper) note(name string, err error) (done bool) {
	delete(k.failed, name)
	refused, isRefused := errors.AsType[*mysqld.RefusedError](err)
	switch {
	case err == nil:
		return true
	case errors.Is(err, mysqld.ErrAtStart):
		k.atStart[name] = true
		return true
	case isRefused:
		k.failed[name] = refused.Why
		return refused.Final()
	}
	k.failed[name] = err.Error()
	return errors.Is(err, mysqld.ErrConfig) || errors.Is(err, mysqld.ErrGuarded)
}

// Report says how the server runs with variables.
func (k *Keeper) Report(want map[string]string) cluster.VariablesOf {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := cluster.VariablesOf{Node: k.node, Error: k.without}
	for _, name := range slices.Sorted(maps.Keys(k.atStart)) {
		began, atStart := k.started[name]
		value, wanted := want[name]
		if began != value || atStart != wanted {
			r.Restart = append(r.Restart, name)
		}
	}
	if len(k.failed) > 0 {
		r.Failed = maps.Clone(k.failed)
	}
	for name := range want {
		if value, operator, _ := mysqld.Own(k.own, name); operator && value != want[name] {
			if r.Own == nil {
				r.Own = map[string]string{}
			}
			r.Own[name] = value
		}
	}
	return r
}

// Trouble says in a line what the status has to say of a report; "" = nothing.
func Trouble(r cluster.VariablesOf) string {
	var said []string
	if r.Error != "" {
		said = append(said, "mysqld did not start with the cluster's variables, and runs without them: "+r.Error+"; correct them (quorate variables), then quorate restart-mysqld "+r.Node)
	}
	if len(r.Restart) > 0 {
		said = append(said, fmt.Sprintf("%s waits for a restart: quorate restart-mysqld %s", strings.Join(r.Restart, ", "), r.Node))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Failed)) {
		said = append(said, fmt.Sprintf("%s is not set: %s", name, r.Failed[name]))
	}
	if len(said) == 0 {
		return ""
	}
	return "variables: " + strings.Join(said, "; ")
}
