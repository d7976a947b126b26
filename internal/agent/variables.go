package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/variables"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

const (
	// variablesTimeout bounds a change of variables: mysqld --validate-config may be read from a
	// cold disk, and one node tries.
	variablesTimeout = time.Minute
	// variablesEvery is how often it is looked whether mysqld has the cluster's variables, beside
	// each change of the cluster state: it may have started since, or not have answered.
	variablesEvery = 2 * time.Second
	// aboutVariables keys among the troubles that mysqld runs without some of them.
	aboutVariables = "variables"
)

// The requests between agents about variables.
const (
	variablesTry   = "variables.try"
	variablesApply = "variables.apply"
)

func (a *Agent) variableRequests() map[string]operate.Handler {
	return map[string]operate.Handler{
		"variables.set":  {Leader: true, Audited: true, Timeout: variablesTimeout, Run: a.controlVariablesSet},
		"variables.list": {Run: a.controlVariablesList},
		variablesTry:     {Timeout: variablesTimeout, Run: a.controlVariablesTry},
		variablesApply:   {Run: a.controlVariablesApply},
	}
}

// runVariables keeps mysqld at the cluster's variables.
func (a *Agent) runVariables(ctx context.Context) error {
	ticker := time.NewTicker(variablesEvery)
	defer ticker.Stop()
	for {
		_, changed := a.Raft.Committed().StateChanged()
		a.keepVariables(ctx)
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// keepVariables has mysqld, if it runs, take what it lacks of the cluster's variables.
func (a *Agent) keepVariables(ctx context.Context) cluster.VariablesOf {
	want := a.Raft.Committed().State().State.Variables
	if p := a.currentProcess(); p != nil {
		ctx, cancel := context.WithTimeout(ctx, control.Timeout)
		defer cancel()
		a.variables.Keep(ctx, p.Incarnation(), want, p.Admin())
	}
	r := a.variables.Report(want)
	a.board.SetTrouble(aboutVariables, variables.Trouble(r))
	return r
}

// controlVariablesSet changes the variables of all nodes: once a node's mysqld has shown that it
// takes them.
func (a *Agent) controlVariablesSet(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.VariablesRequest
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{}, err
	}
	c := cluster.Change{Variables: &args.VariablesChange}
	d := operate.Done{What: c.String(), ReadOnly: args.DryRun}
	if err := args.Check(); err != nil {
		return d, control.Errorf(control.CodeInvalid, "%v", err)
	}
	has := maps.Clone(a.Raft.Committed().State().State.Variables)
	maps.DeleteFunc(has, func(name, _ string) bool { return slices.Contains(args.Unset, name) })
	if err := mysqld.CheckGlobals(args.Set, has); err != nil {
		return d, control.Errorf(control.CodeInvalid, "%v", err)
	}
	if err := a.requests.MayPropose(c); err != nil {
		return d, err
	}
	notes, err := a.tryVariables(ctx, args)
	if err != nil {
		return d, err
	}
	if args.DryRun {
		d, err = a.requests.ChangeAs(ctx, r.By, cluster.Ask{DryRun: true}, c)
	} else {
		d, err = a.requests.ChangeState(ctx, r.By, c)
	}
	result, ok := d.Result.(cluster.ChangeResult)
	if err != nil || !ok {
		return d, err
	}
	result.Notes = append(notes, result.Notes...)
	all := cluster.VariablesResult{ChangeResult: result}
	if !args.DryRun {
		all.Nodes = a.askVariables(ctx, cluster.VariablesApply{Index: d.Index})
	}
	d.Result = all
	return d, nil
}

// tryVariables has one node's mysqld say whether it takes values: a replica's, if there is one,
// which nobody writes to.
func (a *Agent) tryVariables(ctx context.Context, args cluster.VariablesRequest) (notes []string, err error) {
	if len(args.Set) == 0 {
		return nil, nil
	}
	nodes := slices.DeleteFunc(a.sight(a.ownStatus()).Nodes, func(n status.Node) bool { return !n.Reachable || n.Mysqld != status.MysqldRunning })
	if len(nodes) == 0 {
		return nil, control.Errorf(control.CodeFailed, "nothing was done: no node's mysqld runs that could try %s", &args.VariablesChange)
	}
	by := nodes[0]
	if i := slices.IndexFunc(nodes, func(n status.Node) bool { return n.Role == status.RoleReplica }); i >= 0 {
		by = nodes[i]
	}
	try, tried := cluster.VariablesTry{Set: args.Set, DryRun: args.DryRun}, cluster.VariablesTried{}
	if by.ID == a.self.ID {
		tried, err = a.tryHere(ctx, try)
	} else {
		err = a.requests.Request(ctx, by.ID, variablesTry, try, &tried)
	}
	if err != nil {
		return nil, err
	}
	return notesOf(args.Set, tried), nil
}

// notesOf says what there is to know of values that a server takes.
func notesOf(set map[string]string, tried cluster.VariablesTried) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(tried.Made)) {
		notes = append(notes, fmt.Sprintf("mysqld shows %s as %s", name, tried.Made[name]))
	}
	if len(tried.Restart) > 0 {
		notes = append(notes, fmt.Sprintf("%s: a running mysqld does not take it; restart each, the primary last: quorate restart-mysqld NODE", strings.Join(tried.Restart, ", ")))
	}
	applier := slices.DeleteFunc(slices.Sorted(maps.Keys(set)), func(name string) bool { return !mysqld.NeedsReplicaStart(name) })
	if len(applier) > 0 {
		notes = append(notes, fmt.Sprintf("%s: a replica takes it when its replication starts anew; restart the replicas: quorate restart-mysqld NODE", strings.Join(applier, ", ")))
	}
	return notes
}

func (a *Agent) controlVariablesTry(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.VariablesTry
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{ReadOnly: true}, err
	}
	tried, err := a.tryHere(ctx, args)
	return operate.Done{ReadOnly: true, Result: tried}, err
}

// tryHere asks this node's MySQL: whether it would start with the values, beside those that it
// has, and then whether the mysqld that runs takes them.
func (a *Agent) tryHere(ctx context.Context, args cluster.VariablesTry) (tried cluster.VariablesTried, err error) {
	if err := (cluster.VariablesChange{Set: args.Set}).Check(); err != nil {
		return tried, control.Errorf(control.CodeInvalid, "%v", err)
	}
	p := a.currentProcess()
	if p == nil {
		return tried, primary.ErrNoMysqld
	}
	all := map[string]string{}
	for _, some := range []map[string]string{a.cfg.MySQL.Variables, a.Raft.Committed().State().State.Variables, args.Set} {
		maps.Copy(all, some)
	}
	refused, err := mysqld.ValidateVariables(ctx, a.install.Load(), all)
	if err != nil {
		return tried, err
	}
	for _, name := range slices.Sorted(maps.Keys(args.Set)) {
		if err := mysqld.CheckGlobal(name, args.Set[name]); err != nil {
			return tried, control.Errorf(control.CodeInvalid, "%v", err)
		}
		if why, is := refused[name]; is {
			return tried, control.Errorf(control.CodeInvalid, "mysqld %s of node %s would not start with %s=%s: %s", a.install.Load().Version, a.self.Name, name, args.Set[name], why)
		}
	}
	if args.DryRun {
		err = p.Admin().KnowGlobals(ctx, args.Set)
	} else {
		tried.Restart, tried.Made, err = a.variables.Try(ctx, p.Incarnation(), args.Set, p.Admin())
	}
	if left, is := errors.AsType[*mysqld.PutBackError](err); is {
		return tried, control.Errorf(control.CodeFailed, "nothing was done: node %s could not %v; it sets them again", a.self.Name, left)
	}
	if no, is := errors.AsType[*mysqld.RefusedError](err); is {
		return tried, control.Errorf(control.CodeInvalid, "mysqld %s of node %s refuses %v", a.install.Load().Version, a.self.Name, no)
	}
	return tried, err
}

// controlVariablesApply has this node's mysqld run with the variables of an entry, or later ones.
func (a *Agent) controlVariablesApply(ctx context.Context, r control.Request) (operate.Done, error) {
	var args cluster.VariablesApply
	if err := operate.Arguments(r, &args); err != nil {
		return operate.Done{ReadOnly: true}, err
	}
	if err := a.requests.WaitIndex(ctx, args.Index); err != nil {
		return operate.Done{ReadOnly: true}, fmt.Errorf("wait for the change: %w", err)
	}
	return operate.Done{ReadOnly: true, Result: a.keepVariables(ctx)}, nil
}

// controlVariablesList says which variables the cluster has, and how each node runs with them.
func (a *Agent) controlVariablesList(ctx context.Context, r control.Request) (operate.Done, error) {
	if err := operate.Arguments(r, &struct{}{}); err != nil {
		return operate.Done{ReadOnly: true}, err
	}
	list := cluster.VariablesList{Variables: map[string]string{}}
	maps.Copy(list.Variables, a.Raft.Committed().State().State.Variables)
	ctx, cancel := context.WithTimeout(ctx, control.Timeout/2) // of which the answer is left
	defer cancel()
	list.Nodes = a.askVariables(ctx, cluster.VariablesApply{})
	return operate.Done{ReadOnly: true, Result: list}, nil
}

// askVariables has all nodes with a mysqld apply the variables, and say how that went.
func (a *Agent) askVariables(ctx context.Context, args cluster.VariablesApply) []cluster.VariablesOf {
	ctx, cancel := context.WithTimeout(ctx, control.Timeout)
	defer cancel()
	nodes := slices.DeleteFunc(a.sight(a.ownStatus()).Nodes, func(n status.Node) bool { return n.Kind == cluster.KindLogger || n.Mysqld == status.MysqldNone })
	results := make([]cluster.VariablesOf, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		results[i].Node = n.Name
		switch {
		case n.ID == a.self.ID:
			results[i] = a.keepVariables(ctx)
		case !n.Reachable:
			results[i].Error = "it is not heard of: it takes them when it is back"
		default:
			asked.Go(func() {
				if err := a.requests.Request(ctx, n.ID, variablesApply, args, &results[i]); err != nil {
					results[i].Error = err.Error()
				}
			})
		}
	}
	asked.Wait()
	return results
}
