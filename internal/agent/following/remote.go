package following

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

// The requests that another site may make. Only siteKnow is answered without a majority.
const (
	siteLook   = "site.look"
	siteKnow   = "site.know"
	siteFixed  = "site.fixed"
	siteYield  = "site.yield"
	siteResume = "site.resume"
)

// errUnheard ends the reading of a site's node that has no majority: another node may have one.
var errUnheard = errors.New("the node that is followed does not hear a majority of its site")

// AskedBySite carries out what another site asks at a readers' port.
func (s *Service) AskedBySite(ctx context.Context, user string, from net.Addr, request []byte) []byte {
	var r control.Request
	answer := control.Answer{Code: control.CodeInvalid, Error: "a site cannot ask this"}
	if err := json.Unmarshal(request, &r); err == nil && slices.Contains([]string{siteLook, siteKnow, siteFixed, siteYield, siteResume}, r.Name) {
		r.From, r.By = "", fmt.Sprintf("site reader %s at %v", user, from)
		answer = s.requests.Serve(ctx, r)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		s.logger.Error("an answer to another site cannot be encoded", "error", err)
	}
	return text
}

// ask has a request carried out by the cluster that a site's node belongs to.
func (s *Source) ask(ctx context.Context, name string, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	request, err := json.Marshal(control.Request{Name: name, Args: raw})
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	var text string
	if err := s.db.QueryRowContext(ctx, mysqlwire.SiteQuery+base64.StdEncoding.EncodeToString(request)).Scan(&text); err != nil {
		if _, refused := errors.AsType[*mysql.MySQLError](err); refused || errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("ask %s, where the reader needs site = true: %w", s.addr, err)
		}
		return fmt.Errorf("ask %s: %w", s.addr, err)
	}
	var answer control.Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", s.addr, err)
	}
	if err := answer.Err(); err != nil {
		return fmt.Errorf("%s answers: %w", s.addr, err)
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("read the answer of %s: %w", s.addr, err)
	}
	return nil
}

// lookAtSite asks a site for its state, by siteLook or siteKnow.
func (s *Source) lookAtSite(ctx context.Context, request string) (view cluster.SiteView, executed *gtid.Set, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err = s.ask(ctx, request, struct{}{}, &view); err == nil {
		executed, err = gtid.ParseSet(view.Executed)
	}
	if err == nil && view.Ballot.Number > cluster.BallotMax {
		err = fmt.Errorf("%s says that it knows attempt %d, and no site counts that far", s.addr, view.Ballot.Number)
	}
	if err == nil && view.Site != s.site {
		err = fmt.Errorf("%s is a node of cluster %s, not of site %s", s.addr, view.Site, s.site)
	}
	return view, executed, err
}

// sighting is what one of a site's nodes has answered.
type sighting struct {
	// at is the node's place among the addresses.
	at   int
	view cluster.SiteView
	// executed are the GTIDs in view.
	executed *gtid.Set
	err      error
}

// sight asks all nodes of a site at once, by siteLook or siteKnow.
func sight(ctx context.Context, f cluster.Follow, request string) (all []sighting) {
	answers := make(chan sighting)
	n := len(f.Sources())
	for at := range n {
		go func() {
			answers <- sightAt(ctx, f, at, request)
		}()
	}
	for range n {
		all = append(all, <-answers)
	}
	slices.SortFunc(all, func(a, b sighting) int { return a.at - b.at })
	return all
}

// sightAt asks the node at a place among the addresses.
func sightAt(ctx context.Context, f cluster.Follow, at int, request string) sighting {
	seen := sighting{at: at}
	source, err := Open(f.At(at))
	if err != nil {
		seen.err = err
		return seen
	}
	defer func() { _ = source.Close() }()
	seen.view, seen.executed, seen.err = source.lookAtSite(ctx, request)
	return seen
}

// askAt has a request carried out by the cluster that the node at a place belongs to.
func askAt(ctx context.Context, f cluster.Follow, at int, name string, args, result any) error {
	source, err := Open(f.At(at))
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	return source.ask(ctx, name, args, result)
}

// answers returns the first answer without an error; if there is none, the errors of all nodes.
func answers(all []sighting) (sighting, error) {
	var errs []error
	for _, seen := range all {
		if seen.err == nil {
			return seen, nil
		}
		errs = append(errs, seen.err)
	}
	return sighting{}, errors.Join(errs...)
}

// ownSchema is the schema that each site has for itself: what MySQL Router is told of the members. Which events run
// (mysqld.EventsSchema) is the same for both.
func ownSchema(f cluster.Follow) string {
	if f.Site == "" {
		return ""
	}
	return mysqld.RouterSchema
}

// OwnError says why a site is not followed: there are transactions here that it lacks.
type OwnError struct {
	Site string
	Own  *gtid.Set
}

// Error names the transactions.
func (e *OwnError) Error() string {
	return fmt.Sprintf("this site has %d transactions that site %s lacks: %s; look what they are (quorate log dump); quorate site follow --force, if they touch other data", e.Own.Count(), e.Site, cut(e.Own))
}
