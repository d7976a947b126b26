package variables

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
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// setTimeout bounds a change of variables: mysqld --validate-config may be read from a
	// cold disk, and one node tries.
	setTimeout = time.Minute
	// keepEvery is how often Run looks whether mysqld has the cluster's variables, beside each
	// change of the cluster state: mysqld may have started since, or not have answered.
	keepEvery = 2 * time.Second
)

// The requests between agents about variables.
const (
	requestTry   = "variables.try"
	requestApply = "variables.apply"
)

// Node is the node around a Service.
type Node interface {
	// Committed returns the variables of the cluster by what is committed here, and a channel that is closed when the
	// cluster state changes.
	Committed() (variables map[string]string, changed <-chan struct{})
	// Process is the mysqld that runs; nil = none does. Installed is the MySQL from which the newest was started.
	Process() *mysqld.Process
	Installed() *install.Installation
	// Nodes are all nodes as they are known here.
	Nodes() []status.Node
	// Trouble takes what mysqld runs without, for the status; "" = it has all.
	Trouble(text string)
}

// Service keeps a node's mysqld at the cluster's variables, and carries out requests about them. Make one with NewService.
type Service struct {
	*Keeper
	self cluster.Member
	node Node
	// requests is where the Service asks other nodes, and has changes committed.
	requests *operate.Server
}

// NewService returns the Service of a node whose configuration has the variables own. It starts nothing.
func NewService(self cluster.Member, own map[string]string, node Node, requests *operate.Server) *Service {
	return &Service{Keeper: New(self.Name, own), self: self, node: node, requests: requests}
}

// Handlers are the requests about variables.
func (s *Service) Handlers() map[string]operate.Handler {
	return map[string]operate.Handler{
		"variables.set":  {Leader: true, Audited: true, Timeout: setTimeout, Run: operate.Typed(s.set)},
		"variables.list": {Run: operate.Typed(s.list)},
		requestTry:       {Timeout: setTimeout, Run: operate.Typed(s.try)},
		requestApply:     {Run: operate.Typed(s.apply)},
	}
}

// Run keeps mysqld at the cluster's variables, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for c := new(clock.OneTimer); ; {
		_, changed := s.node.Committed()
		s.keep(ctx)
		if c.Wait(ctx, keepEvery, changed) != nil {
			return nil
		}
	}
}

// keep has mysqld, if it runs, take what it lacks of the cluster's variables.
func (s *Service) keep(ctx context.Context) cluster.VariablesOf {
	want, _ := s.node.Committed()
	if p := s.node.Process(); p != nil {
		ctx, cancel := context.WithTimeout(ctx, control.Timeout)
		defer cancel()
		s.Keep(ctx, p.Incarnation(), want, p.Admin())
	}
	r := s.Report(want)
	s.node.Trouble(Trouble(r))
	return r
}

// set changes the variables of all nodes: once a node's mysqld has shown that it
// takes them.
func (s *Service) set(ctx context.Context, r control.Request, args cluster.VariablesRequest) (operate.Done, error) {
	c := cluster.Change{Variables: &args.VariablesChange}
	d := operate.Done{What: c.String(), ReadOnly: args.DryRun}
	if err := args.Check(); err != nil {
		return d, control.Errorf(control.CodeInvalid, "%v", err)
	}
	has := s.committed()
	var unknown []string
	for _, name := range args.Unset {
		if _, ok := has[name]; !ok {
			unknown = append(unknown, "the cluster had no value of "+name)
		}
	}
	maps.DeleteFunc(has, func(name, _ string) bool { return slices.Contains(args.Unset, name) })
	if err := mysqld.CheckGlobals(args.Set, has); err != nil {
		return d, control.Errorf(control.CodeInvalid, "%v", err)
	}
	if err := s.requests.MayPropose(c); err != nil {
		return d, err
	}
	notes, err := s.tryOne(ctx, args)
	if err != nil {
		return d, err
	}
	notes = append(notes, applierNotes(args.VariablesChange)...)
	if args.DryRun {
		d, err = s.requests.ChangeAs(ctx, r.By, cluster.Ask{DryRun: true}, c)
	} else {
		d, err = s.requests.ChangeState(ctx, r.By, c)
	}
	result, ok := d.Result.(cluster.ChangeResult)
	if err != nil || !ok {
		return d, err
	}
	result.Notes = append(append(notes, unknown...), result.Notes...)
	all := cluster.VariablesResult{ChangeResult: result}
	if !args.DryRun {
		all.Nodes = s.askAll(ctx, cluster.VariablesApply{Index: d.Index})
	}
	d.Result = all
	return d, nil
}

// tryOne has one node's mysqld say whether it takes values: a replica's, if there is one,
// which nobody writes to.
func (s *Service) tryOne(ctx context.Context, args cluster.VariablesRequest) (notes []string, err error) {
	if len(args.Set) == 0 {
		return nil, nil
	}
	nodes := slices.DeleteFunc(s.node.Nodes(), func(n status.Node) bool { return !n.Reachable || n.Mysqld != status.MysqldRunning })
	if len(nodes) == 0 {
		return nil, control.Errorf(control.CodeFailed, "nothing was done: no node's mysqld runs that could try %s", &args.VariablesChange)
	}
	by := nodes[0]
	if i := slices.IndexFunc(nodes, func(n status.Node) bool { return n.Role == status.RoleReplica }); i >= 0 {
		by = nodes[i]
	}
	try, tried := cluster.VariablesTry{Set: args.Set, DryRun: args.DryRun}, cluster.VariablesTried{}
	if by.ID == s.self.ID {
		tried, err = s.tryHere(ctx, try)
	} else {
		err = plain(s.requests.Request(ctx, by.ID, requestTry, try, &tried))
	}
	if err != nil {
		return nil, err
	}
	return notesOf(tried), nil
}

// plain is another node's refusal alone: it names that node itself.
func plain(err error) error {
	if refused, is := errors.AsType[*control.Error](err); is && refused.Code == control.CodeInvalid {
		return refused
	}
	return err
}

// committed returns a copy of the cluster's variables.
func (s *Service) committed() map[string]string {
	has, _ := s.node.Committed()
	return maps.Clone(has)
}

// notesOf says what there is to know of values that a server takes.
func notesOf(tried cluster.VariablesTried) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(tried.Made)) {
		notes = append(notes, fmt.Sprintf("mysqld shows %s as %s", name, tried.Made[name]))
	}
	if len(tried.Restart) > 0 {
		notes = append(notes, fmt.Sprintf("%s: a running mysqld does not take it; restart each, the primary last: quorate restart-mysqld NODE", strings.Join(tried.Restart, ", ")))
	}
	return notes
}

// applierNotes says which values, given or taken back, do not hold at once for a replica's applier.
func applierNotes(c cluster.VariablesChange) (notes []string) {
	names := append(slices.Sorted(maps.Keys(c.Set)), c.Unset...)
	names = slices.DeleteFunc(names, func(name string) bool { return !mysqld.NeedsReplicaStart(name) })
	if len(names) > 0 {
		notes = append(notes, fmt.Sprintf("%s: a replica takes it when its replication starts again; restart the replicas: quorate restart-mysqld NODE", strings.Join(names, ", ")))
	}
	return notes
}

func (s *Service) try(ctx context.Context, r control.Request, args cluster.VariablesTry) (operate.Done, error) {
	tried, err := s.tryHere(ctx, args)
	return operate.Done{ReadOnly: true, Result: tried}, err
}

// tryHere asks this node's MySQL: whether it would start with the values, beside those that it
// has, and then whether the mysqld that runs takes them.
func (s *Service) tryHere(ctx context.Context, args cluster.VariablesTry) (tried cluster.VariablesTried, err error) {
	if err := (cluster.VariablesChange{Set: args.Set}).Check(); err != nil {
		return tried, control.Errorf(control.CodeInvalid, "%v", err)
	}
	p := s.node.Process()
	if p == nil {
		return tried, primary.ErrNoMysqld
	}
	all := map[string]string{}
	for _, some := range []map[string]string{s.own, s.committed(), args.Set} {
		maps.Copy(all, some)
	}
	refused, err := mysqld.ValidateVariables(ctx, s.node.Installed(), all)
	if err != nil {
		return tried, err
	}
	for _, name := range slices.Sorted(maps.Keys(args.Set)) {
		if err := mysqld.CheckGlobal(name, args.Set[name]); err != nil {
			return tried, control.Errorf(control.CodeInvalid, "%v", err)
		}
		if why, is := refused[name]; is {
			return tried, control.Errorf(control.CodeInvalid, "mysqld %s of node %s would not start with %s=%s: %s", s.node.Installed().Version, s.self.Name, name, args.Set[name], why)
		}
	}
	if args.DryRun {
		err = p.Admin().KnowGlobals(ctx, args.Set)
	} else {
		tried.Restart, tried.Made, err = s.Try(ctx, p.Incarnation(), args.Set, p.Admin())
	}
	if left, is := errors.AsType[*mysqld.PutBackError](err); is {
		return tried, control.Errorf(control.CodeFailed, "nothing was done: node %s could not %v; it sets them again", s.self.Name, left)
	}
	if no, is := errors.AsType[*mysqld.RefusedError](err); is {
		return tried, control.Errorf(control.CodeInvalid, "mysqld %s of node %s refuses %v", s.node.Installed().Version, s.self.Name, no)
	}
	return tried, err
}

// apply has this node's mysqld run with the variables of an entry, or later ones.
func (s *Service) apply(ctx context.Context, r control.Request, args cluster.VariablesApply) (operate.Done, error) {
	if err := s.requests.WaitIndex(ctx, args.Index); err != nil {
		return operate.Done{ReadOnly: true}, fmt.Errorf("wait for the change: %w", err)
	}
	return operate.Done{ReadOnly: true, Result: s.keep(ctx)}, nil
}

// list says which variables the cluster has, and how each node runs with them.
func (s *Service) list(ctx context.Context, r control.Request, _ struct{}) (operate.Done, error) {
	list := cluster.VariablesList{Variables: map[string]string{}}
	maps.Copy(list.Variables, s.committed())
	ctx, cancel := context.WithTimeout(ctx, control.Timeout/2) // the rest is left for the answer
	defer cancel()
	list.Nodes = s.askAll(ctx, cluster.VariablesApply{})
	return operate.Done{ReadOnly: true, Result: list}, nil
}

// askAll has all nodes with a mysqld apply the variables, and say how that went.
func (s *Service) askAll(ctx context.Context, args cluster.VariablesApply) []cluster.VariablesOf {
	ctx, cancel := context.WithTimeout(ctx, control.Timeout)
	defer cancel()
	nodes := slices.DeleteFunc(s.node.Nodes(), func(n status.Node) bool { return n.Kind == cluster.KindLogger || n.Mysqld == status.MysqldNone })
	results := make([]cluster.VariablesOf, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		results[i].Node = n.Name
		switch {
		case n.ID == s.self.ID:
			results[i] = s.keep(ctx)
		case !n.Reachable:
			results[i].Error = "it is not heard of: it takes them when it is back"
		default:
			asked.Go(func() {
				if err := s.requests.Request(ctx, n.ID, requestApply, args, &results[i]); err != nil {
					results[i].Error = err.Error()
				}
			})
		}
	}
	asked.Wait()
	return results
}
