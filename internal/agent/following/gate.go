package following

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// gate is whether a server takes writes, and who has set that, at one moment.
type gate struct {
	uuid                    string
	superReadOnly, readOnly bool
	// persisted is the persisted value of super_read_only (ON, OFF); "" = none.
	persisted string
	// account is the account that asks.
	account string
	// super and read say who has set super_read_only and read_only last.
	super, read setter
}

// setter is who has set a variable last: text says it with the time, user is the account; "" = nobody since the start.
type setter struct{ text, user string }

const gateQuery = `SELECT @@server_uuid, @@GLOBAL.super_read_only, @@GLOBAL.read_only, USER(),
	COALESCE((SELECT variable_value FROM performance_schema.persisted_variables WHERE variable_name = 'super_read_only'), ''),
	s.text, s.user, r.text, r.user FROM
	(` + setterQuery + `'super_read_only') s, (` + setterQuery + `'read_only') r`

const setterQuery = `SELECT CONCAT_WS(' ', variable_source, CONCAT(set_user, '@', set_host), UNIX_TIMESTAMP(set_time)) text, COALESCE(set_user, '') user
	FROM performance_schema.variables_info WHERE variable_name = `

// gateOf looks at a server. It fails if the server has another UUID than uuid; "" = any.
func gateOf(ctx context.Context, db asked, uuid string) (g gate, err error) {
	if err := db.QueryRowContext(ctx, gateQuery).Scan(&g.uuid, &g.superReadOnly, &g.readOnly, &g.account, &g.persisted,
		&g.super.text, &g.super.user, &g.read.text, &g.read.user); err != nil {
		return gate{}, fmt.Errorf("look whether the source takes writes: %w", err)
	}
	if at := strings.LastIndexByte(g.account, '@'); at >= 0 {
		g.account = g.account[:at]
	}
	if uuid != "" && g.uuid != uuid {
		return gate{}, fmt.Errorf("another server answers there, not the source of the cutover (server_uuid %s)", uuid)
	}
	return g, nil
}

// closed tells whether it takes fewer writes than before a cutover.
func (g gate) closed(was cluster.Closing) bool {
	return g.superReadOnly || g.readOnly && !was.ReadOnly
}

// kept tells whether it would be closed after a restart, and would not have been before a cutover.
func (g gate) kept(was cluster.Closing) bool { return g.persisted == "ON" && was.Persisted != "ON" }

// others says who, other than the cutover's account, has set since a cutover began whether the server takes writes:
// an operator, a failover tool, or its configuration at a restart; "" = nobody. A cutover that was ended half-way may
// have closed it without being the setter. After a restart, a variable that nobody has configured (COMPILED) has no
// setter, either.
func (g gate) others(was cluster.Closing) string {
	if who := g.other(g.super, was.SuperSet, was); who != "" {
		return who
	}
	if g.superReadOnly && g.super.text == was.SuperSet && g.super.user == "" { // it was off, and no SET has turned it on
		return itsConfiguration
	}
	return g.other(g.read, was.ReadSet, was)
}

// itsConfiguration stands for the setter of variables when a server starts.
const itsConfiguration = "its configuration"

// other says who has set a variable, unless that is the setter from before, or the cutover's account.
func (g gate) other(now setter, before string, was cluster.Closing) string {
	switch {
	case now.text == before, now.text == "COMPILED", now.user != "" && (now.user == was.Account || now.user == g.account):
		return ""
	case now.user == "":
		return itsConfiguration
	}
	return now.user
}

// setSince is the result of others in a sentence.
func (g gate) setSince(was cluster.Closing) string {
	if who := g.others(was); who != "" {
		return who + " has set super_read_only or read_only since"
	}
	return ""
}

// errClosedAlready means that somebody else has closed the source.
var errClosedAlready = errors.New("the source is closed for writes already: if you closed it, use --source-closed")

// closing is what is noted of the source before it is closed. earlier is a cutover that has closed it, and is not
// over; nil = none.
func (g gate) closing(earlier *cluster.Closing) (*cluster.Closing, error) {
	c := cluster.Closing{ServerUUID: g.uuid, ReadOnly: g.readOnly, Persisted: g.persisted, Account: g.account, SuperSet: g.super.text, ReadSet: g.read.text}
	switch {
	case earlier == nil && g.superReadOnly:
		return nil, errClosedAlready
	case earlier == nil:
		return &c, nil
	case earlier.ServerUUID != g.uuid:
		return nil, fmt.Errorf("another server answers there, not the source that an earlier cutover has closed (server_uuid %s)", earlier.ServerUUID)
	}
	if !g.closed(*earlier) { // somebody has opened it since
		if g.kept(*earlier) {
			c.Persisted = earlier.Persisted
		}
		return &c, nil
	}
	if why := cmp.Or(earlier.Left, g.setSince(*earlier)); why != "" {
		return nil, fmt.Errorf("the source is closed: %s. If it should stay closed, use --source-closed; else open it there", why)
	}
	again := *earlier
	again.CalledOff = false
	return &again, nil
}

// leftError says why a source is left closed that was to be opened: somebody else wants it closed.
type leftError struct{ why string }

func (e *leftError) Error() string { return "the source is left closed: " + e.why }
