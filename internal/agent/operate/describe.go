package operate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// describe says in a line what a request asks for, if its handler has not said that.
func describe(r control.Request) string {
	text := cmp.Or(inWords(r), strings.ReplaceAll(r.Name, ".", " ")) // site.switch and others have no arguments to tell
	return text[:min(len(text), auditTextBytesMax)]
}

// inWords says what an operator's request asks for; "" = its name says it, or its arguments cannot be read.
func inWords(r control.Request) string {
	switch r.Name {
	case "node.set":
		return spoken[cluster.NodeChange](r.Args)
	case "cluster.set":
		return spoken[cluster.SettingsChange](r.Args)
	case "node.key":
		return spoken[cluster.KeysChange](r.Args)
	case "variables.set":
		return spoken[cluster.VariablesChange](r.Args)
	case "maintenance":
		return spoken[cluster.MaintenanceChange](r.Args)
	case "switchover":
		return spoken[cluster.SwitchoverRequest](r.Args)
	case "restart":
		return spoken[cluster.RestartRequest](r.Args)
	case "follow.start":
		return strings.TrimSpace("follow " + spoken[cluster.Follow](r.Args))
	case "follow.stop":
		return "follow --stop"
	case "site.yield":
		return spoken[cluster.SiteYield](r.Args)
	case "site.resume": // without its token
		return spoken[cluster.SiteResume](r.Args)
	case "log.purge":
		return spoken[cluster.PurgeRequest](r.Args)
	}
	if text := spoken[cluster.FenceRequest](r.Args); r.Name == "fence" || r.Name == "unfence" {
		return strings.TrimSpace(r.Name + " " + text)
	}
	op, member := strings.CutPrefix(r.Name, "node.")
	var asked cluster.MembershipRequest
	if !member || json.Unmarshal(r.Args, &asked) != nil {
		return ""
	}
	asked.Change.Op = cluster.MembershipOp(op)
	return asked.Change.String()
}

// spoken reads a request's arguments and says them; "" = they cannot be read.
func spoken[T fmt.Stringer](args json.RawMessage) string {
	var asked T
	if json.Unmarshal(args, &asked) != nil {
		return ""
	}
	return asked.String()
}
