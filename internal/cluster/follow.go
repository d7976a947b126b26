package cluster

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds of the texts about a source.
const (
	followTextBytesMax = 255
	// closingLeftBytesMax bounds the reason why a source is left closed.
	closingLeftBytesMax = 1000
	followPathBytesMax  = 512
	// FollowAcceptedBytesMax bounds the set of transactions that may be accepted.
	FollowAcceptedBytesMax = 8 << 10
)

// Follow is a MySQL server outside of the cluster whose transactions the primary writes here, until the
// cutover. Clients do not write meanwhile.
type Follow struct {
	// Source is the server's host:port; for a site it is "": its nodes are in the configuration.
	Source string `json:"source"`
	// User is the account there. Its password is in the file PasswordFile of each node; the password is not in
	// the log.
	User         string `json:"user"`
	PasswordFile string `json:"password_file"`
	// Plain: the connection is not protected. Otherwise it has TLS. If CAFile is set, a file of each node, the
	// source's certificate has to be issued by that authority for the source's host.
	Plain  bool   `json:"plain,omitempty"`
	CAFile string `json:"ca_file,omitempty"`
	// ServerUUID is the server that was found there. Accepted are the transactions that the cluster had and the
	// server lacked, which the operator has accepted; "" = none.
	ServerUUID string `json:"server_uuid,omitempty"`
	Accepted   string `json:"accepted,omitempty"`
	// Site is the name of a cluster that is followed instead; "" = a server is followed. Token is the sealed
	// token of the request by which this cluster is closed until that site has taken over, and Ballot is that
	// request's ballot. Followed: this cluster followed it before already.
	Site     string `json:"site,omitempty"`
	Token    string `json:"token,omitempty"`
	Ballot   Ballot `json:"ballot,omitzero"`
	Followed bool   `json:"followed,omitempty"`
	// By is who asked for it, Since when it began.
	By    string    `json:"by,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// String says in one line what is followed.
func (f Follow) String() string {
	if f.Site != "" {
		return "site " + f.Site
	}
	return fmt.Sprintf("%s as %s", f.Source, f.User)
}

// Check refuses a value that cannot be a source.
func (f Follow) Check() error {
	at := strings.LastIndexByte(f.Source, ':')
	switch {
	case f.Site != "" || f.Token != "":
		return errors.New("a site is followed by quorate site follow")
	case at < 1 || at == len(f.Source)-1 || len(f.Source) > followTextBytesMax || !printable(f.Source):
		return fmt.Errorf("source %q is not a host:port", f.Source)
	case f.User == "" || len(f.User) > followTextBytesMax || !printable(f.User):
		return errors.New("the account at the source must be named: --user")
	case f.PasswordFile == "":
		return errors.New("the file with the account's password must be named: --password-file")
	case !followPath(f.PasswordFile):
		return fmt.Errorf("password file %q is not an absolute path", f.PasswordFile)
	case f.CAFile != "" && !followPath(f.CAFile):
		return fmt.Errorf("CA file %q is not an absolute path", f.CAFile)
	case len(f.ServerUUID) > followTextBytesMax || len(f.Accepted) > FollowAcceptedBytesMax:
		return errors.New("what is known of the source is too long to be kept")
	case f.CAFile != "" && f.Plain:
		return errors.New("a CA file is for TLS, which is off")
	}
	return nil
}

func followPath(path string) bool {
	return strings.HasPrefix(path, "/") && len(path) <= followPathBytesMax && printable(path)
}

// Closing is the cutover by which the source is closed for writes, or may be. It is noted before the source is
// closed, so that a later primary can open the source again.
type Closing struct {
	// ServerUUID is the server that is closed, ReadOnly its read_only before. Persisted is the persisted value
	// of super_read_only there (ON, OFF); "" = none was persisted.
	ServerUUID string `json:"server_uuid"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	Persisted  string `json:"persisted,omitempty"`
	// Account is the account that closes the source. SuperSet and ReadSet say who had set super_read_only and
	// read_only last before, and when. What others have set since then is not undone.
	Account  string `json:"account,omitempty"`
	SuperSet string `json:"super_set,omitempty"`
	ReadSet  string `json:"read_set,omitempty"`
	// CalledOff: the cutover will not take over any more, and the source has to be opened. Left is why it is
	// not opened after all: as far as is known, somebody else wants it closed. Then an operator decides.
	CalledOff bool   `json:"called_off,omitempty"`
	Left      string `json:"left,omitempty"`
	// By is who asked for it, Since when it began.
	By    string    `json:"by,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// CutOver is a server that the cluster has replaced. It is kept for an operator who got no answer and asks for
// the cutover again.
type CutOver struct {
	Source string `json:"source"`
	// By is who asked for it, At when it was done.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
}

// FollowChange begins to follow a source, ends that, or notes how far a cutover is.
type FollowChange struct {
	// Start is the source; nil = following ends, unless another field is set.
	Start *Follow `json:"start,omitempty"`
	// Cutover: the cluster replaces the source.
	Cutover bool `json:"cutover,omitempty"`
	// Close: the source is about to be closed for a cutover. CallOff: that cutover will not take over any more.
	// Opened: the source is open again. Left is why it is not opened.
	Close   *Closing `json:"close,omitempty"`
	CallOff bool     `json:"call_off,omitempty"`
	Opened  bool     `json:"opened,omitempty"`
	Left    string   `json:"left,omitempty"`
}

// closing tells whether the change is about a cutover that is under way.
func (c FollowChange) closing() bool {
	return c.Close != nil || c.CallOff || c.Opened || c.Left != ""
}

// String says in one line what is changed.
func (c FollowChange) String() string {
	switch {
	case c.Start != nil:
		return "follow " + c.Start.String()
	case c.Cutover:
		return "cutover"
	case c.Close != nil:
		return "cutover: close the source"
	case c.CallOff:
		return "cutover: call it off"
	case c.Opened:
		return "cutover: the source is open again"
	case c.Left != "":
		return "cutover: the source is left closed"
	}
	return "follow --stop"
}

func (c FollowChange) done() string {
	switch {
	case c.Start != nil:
		return fmt.Sprintf("The cluster follows %s. Clients cannot write until the cutover.", c.Start)
	case c.Cutover:
		return "The cluster has taken over: clients write here."
	case c.Close != nil:
		return "The source is about to be closed for a cutover."
	case c.CallOff:
		return "The cutover is called off, and the source is about to be opened again."
	case c.Opened:
		return "The cutover is called off: the source is open again."
	case c.Left != "":
		return "The cutover is called off, and the source is left closed."
	}
	return "The cluster follows nobody any more: clients write here."
}

func (s *State) setFollow(c Change) (changed bool, err error) {
	start := c.Follow.Start
	switch {
	case s.Follow != nil && s.Follow.Site != "":
		return false, fmt.Errorf("the cluster follows %s, and must not take writes while the other site may: quorate site switch, or quorate site promote", s.Follow)
	case start != nil && s.Site != nil && s.Site.Fence:
		return false, s.Site.error()
	}
	if c.Follow.closing() {
		return s.setClosing(c)
	}
	if start == nil {
		if c.Follow.Cutover && s.Closing != nil && s.Closing.CalledOff {
			return false, errors.New("the cutover was called off")
		}
		if s.Follow == nil {
			return false, nil
		}
		if c.Follow.Cutover {
			s.CutOver = &CutOver{s.Follow.Source, c.By, c.At}
		}
		s.Follow, s.Closing = nil, nil
		return true, nil
	}
	if err := start.Check(); err != nil {
		return false, err
	}
	next := *start
	next.By, next.Since = c.By, c.At
	if s.Follow != nil {
		if s.Follow.Source != next.Source {
			return false, fmt.Errorf("the cluster follows %s: end that first (quorate follow --stop)", s.Follow)
		}
		next.By, next.Since = s.Follow.By, s.Follow.Since
		if next == *s.Follow {
			return false, nil
		}
	}
	if s.Closing != nil && s.Closing.ServerUUID != next.ServerUUID { // the server of the cutover is not followed any more
		s.Closing = nil
	}
	s.Follow, s.CutOver = &next, nil
	return true, nil
}

// setClosing notes how far a cutover is.
func (s *State) setClosing(c Change) (changed bool, err error) {
	switch next := c.Follow.Close; {
	case s.Follow == nil:
		return false, errors.New("the cluster follows nobody")
	case next != nil && (next.ServerUUID == "" || len(next.ServerUUID) > followTextBytesMax || next.CalledOff):
		return false, errors.New("the change must name the server that is closed")
	case next != nil && next.Persisted != "" && next.Persisted != "ON" && next.Persisted != "OFF":
		return false, errors.New("the persisted value of super_read_only must be ON, OFF or empty")
	case next != nil && (len(next.Account)+len(next.SuperSet)+len(next.ReadSet) > 3*followTextBytesMax || len(next.Left) > closingLeftBytesMax):
		return false, errors.New("what is known of who closed the source is too long to be kept")
	case next != nil: // it replaces an earlier one, whose node is gone
		closing := *next
		closing.By, closing.Since = c.By, c.At
		s.Closing = &closing
		return true, nil
	case s.Closing == nil:
		return false, nil
	case c.Follow.CallOff:
		if s.Closing.CalledOff {
			return false, nil
		}
		off := *s.Closing
		off.CalledOff = true
		s.Closing = &off
		return true, nil
	case !s.Closing.CalledOff:
		return false, errors.New("the cutover was not called off: it may take over")
	case len(c.Follow.Left) > closingLeftBytesMax || !printable(c.Follow.Left):
		return false, errors.New("the reason why the source is left closed cannot be kept")
	case c.Follow.Left != "":
		left := *s.Closing
		left.Left = c.Follow.Left
		changed = left != *s.Closing
		s.Closing = &left
		return changed, nil
	}
	s.Closing = nil
	return true, nil
}

// FollowRequest asks the cluster to begin to follow a source.
type FollowRequest struct {
	Follow
	// Check: only check whether that is possible.
	Check bool `json:"check,omitempty"`
	// Force: follow even if the cluster has transactions that the source lacks.
	Force bool `json:"force,omitempty"`
}

// FollowResult is the result of a FollowRequest.
type FollowResult struct {
	ChangeResult
	Checks []Check `json:"checks,omitempty"`
}

// FollowStatus is how far the primary has followed.
type FollowStatus struct {
	// Follow is nil if the cluster follows nothing.
	Follow *Follow `json:"follow,omitempty"`
	// Node is the primary.
	Node string `json:"node,omitempty"`
	// Left is how many transactions of the source are not here. Seconds is how old the newest transaction is
	// that is here, if some are left. Known: the source was asked and has answered.
	Left    uint64  `json:"left"`
	Seconds float64 `json:"seconds"`
	Known   bool    `json:"known"`
	// Written is how many transactions were written since this primary began, LeftOut how many of them without
	// what their statements say.
	Written uint64 `json:"written"`
	LeftOut uint64 `json:"left_out,omitempty"`
	// Error is why the primary does not follow now; "" = it follows.
	Error string `json:"error,omitempty"`
	// Closing is the cutover that has closed the source, or may have; nil = none. OpenError is why the source
	// of a cutover that was called off could not be opened again yet.
	Closing   *Closing `json:"closing,omitempty"`
	OpenError string   `json:"open_error,omitempty"`
}

// String says in one sentence how far following is.
func (s FollowStatus) String() string {
	switch {
	case s.Error != "":
		return "does not follow: " + s.Error
	case !s.Known:
		return "begins to follow"
	case s.Left == 0:
		return "has all that the source has"
	}
	return fmt.Sprintf("%d transactions left, %.1f s behind", s.Left, s.Seconds)
}

// Verify is how tables are compared at a cutover.
type Verify string

// The ways to compare.
const (
	VerifyNothing  Verify = ""
	VerifyRows     Verify = "rows"     // the number of rows of each table
	VerifyChecksum Verify = "checksum" // CHECKSUM TABLE
)

// Bounds and default of how long writes may be stopped at a cutover.
const (
	CutoverWithinDefault = 30 * time.Second
	CutoverWithinMin     = time.Second
	CutoverWithinMax     = 100 * time.Second
)

// CutoverRequest asks the cluster to replace the source.
type CutoverRequest struct {
	// SourceClosed: somebody else has closed the source for writes.
	SourceClosed bool `json:"source_closed,omitempty"`
	// Force: cut over even if the cluster has transactions that the source lacks.
	Force  bool          `json:"force,omitempty"`
	Verify Verify        `json:"verify,omitempty"`
	Within time.Duration `json:"within_ns"`
}

// Cutover is the result of a CutoverRequest.
type Cutover struct {
	Source string `json:"source"`
	Node   string `json:"node"`
	// Already: the cutover had been done before the request, and nothing else is known of it.
	Already bool `json:"already,omitempty"`
	// At is when it was done; not known for a site.
	At time.Time `json:"at,omitzero"`
	// Left is how many transactions were left when the source was closed.
	Left uint64 `json:"left"`
	// Tables is how many tables were compared.
	Tables int `json:"tables,omitempty"`
	// LeftOut is how many transactions were written, since this primary began, without what their statements
	// say.
	LeftOut uint64 `json:"left_out,omitempty"`
	// Seconds is how long writes were stopped: from when the source began to be closed, or the cutover was
	// asked for, until clients could write here.
	Seconds float64 `json:"seconds"`
	// Reopens is why the source, which was closed, will not stay closed when it restarts; "" = it will, or
	// somebody else has closed it.
	Reopens string `json:"reopens,omitempty"`
	// Executed is the set of transactions that the source had.
	Executed string `json:"executed"`
}
