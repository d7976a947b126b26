package peers

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// The cities of the network two-city of package netlab. They name quorate's sites, and its clusters if there are two.
const (
	east = "east" // a, b and d
	west = "west" // c, e and f
)

// siteMajority is the other value of Options.Durability, beside "".
const siteMajority = string(cluster.DurabilitySiteMajority)

// readersPort is the port at which one site asks the other.
const readersPort = 7403

func cityOf(node string) string {
	if slices.Contains([]string{"c", "e", "f"}, node) {
		return west
	}
	return east
}

// City returns the nodes in the city of a node.
func (d *Deployment) City(node string) (all []string) {
	for _, n := range d.nodes {
		if n.name != clientNode && cityOf(n.name) == cityOf(node) {
			all = append(all, n.name)
		}
	}
	return all
}

// clusterOf names the cluster of a node.
func (a *agents) clusterOf(n *node) string {
	if a.d.opts.Sites > 1 {
		return cityOf(n.name)
	}
	return "lab"
}

// siteFile is the path of a file that both sites have.
func (a *agents) siteFile(name string) string { return filepath.Join(a.d.opts.Dir, "site."+name) }

// makeSiteFiles makes the password and the certificate by which the sites know each other: the same for all nodes.
func (a *agents) makeSiteFiles() error {
	if a.d.opts.Sites < 2 {
		return nil
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the sites' key: %w", err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	for _, n := range a.nodes {
		c.IPAddresses = append(c.IPAddresses, net.IP(n.addr.AsSlice()))
	}
	cert, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		return fmt.Errorf("make the sites' certificate: %w", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("make the sites' key: %w", err)
	}
	for name, text := range map[string][]byte{
		"password": []byte(a.d.password + "\n"),
		"cert":     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"key":      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		if err := os.WriteFile(a.siteFile(name), text, 0o600); err != nil {
			return fmt.Errorf("write the sites' files: %w", err)
		}
	}
	return nil
}

// renderSite is the further configuration of each node of two sites: who may ask it, and how it asks the other site.
func (a *agents) renderSite(n *node) string {
	other, nodes := "", []string{}
	for _, m := range a.nodes {
		if a.clusterOf(m) != a.clusterOf(n) {
			other, nodes = a.clusterOf(m), append(nodes, address(m.addr.String(), readersPort))
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "[[reader]]\nuser = \"site\"\npassword_file = %q\nallow = %q\nsite = true\n", a.siteFile("password"), netip.PrefixFrom(n.addr, 24).Masked())
	fmt.Fprintf(&b, "[site]\nname = %q\nnodes = [\"%s\"]\nuser = \"site\"\npassword_file = %q\nca_file = %q\n", other, strings.Join(nodes, `", "`), a.siteFile("password"), a.siteFile("cert"))
	return b.String()
}

// span sets up running nodes as the options say for the two cities.
func (a *agents) span(ctx context.Context) error {
	if a.d.opts.Sites > 1 {
		return a.askOn(ctx, "c", "site", "follow")
	}
	if a.d.opts.Durability == "" {
		return nil
	}
	for _, n := range a.nodes {
		if err := a.ask(ctx, "node", "set", n.name, "--site", cityOf(n.name)); err != nil {
			return err
		}
	}
	return a.ask(ctx, "cluster", "set", "--durability", a.d.opts.Durability)
}

// elsewhere moves the writes to the other city, in order.
func (a *agents) elsewhere(ctx context.Context) error {
	if a.d.opts.Sites > 1 {
		return a.askOn(ctx, "c", "site", "switch")
	}
	return a.ask(ctx, "switchover", "--to", "c")
}

// failover does what an operator does when a city is gone for good. If a majority is left, there is nothing to do.
func (a *agents) failover(ctx context.Context, _ string) ([]string, error) {
	var left []*node
	voters := 0
	for _, n := range a.nodes {
		if n.kind == string(cluster.KindLearner) {
			continue
		}
		voters++
		if n.running() != nil {
			left = append(left, n)
		}
	}
	if len(left) == 0 || 2*len(left) > voters {
		return nil, nil
	}
	on := left[0]
	if a.d.opts.Sites > 1 {
		return []string{"quorate site promote on " + on.name}, a.askOn(ctx, on.name, "site", "promote", "--yes")
	}
	steps := []string{"stop the agent of " + on.name}
	if err := on.stop(stopWait); err != nil {
		return steps, err
	}
	steps = append(steps, "quorate recover --force-new-cluster on "+on.name)
	cmd := exec.Command(a.d.opts.Install.Quorate, "recover", "--force-new-cluster", "--accept-loss", "none", "--config", a.configOf(on))
	if err := a.d.run(ctx, on.name, cmd, on.log()); err != nil {
		return steps, err
	}
	return append(steps, "start the agent of "+on.name), a.restart(ctx, on.name)
}
