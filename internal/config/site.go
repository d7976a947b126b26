package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// Site is another cluster: this one may follow it, and it may follow this one.
type Site struct {
	// Name is the other cluster's; "" = there is none. Nodes are the host:port of its readers' ports.
	Name  string
	Nodes []string
	// User is the reader's account there. Its password is in PasswordFile.
	User, PasswordFile string
	// CAFile has the authority of the other site's certificates. Plain: the connection has no TLS, which is only
	// allowed on one host.
	CAFile string
	Plain  bool
}

// Follow is how the other site is followed.
func (s Site) Follow() cluster.Follow {
	return cluster.Follow{Site: s.Name, Source: strings.Join(s.Nodes, ","), User: s.User, PasswordFile: s.PasswordFile, CAFile: s.CAFile, Plain: s.Plain}
}

func (c Config) validateSite(l *problemList) {
	s := c.Site
	if s.Name == "" {
		if len(s.Nodes) > 0 || s.User != "" || s.PasswordFile != "" || s.CAFile != "" || s.Plain {
			l.add("site.name", "[site] has no name: write the other cluster's")
		}
		return
	}
	checkName(l, "site.name", "site.name", s.Name)
	checkName(l, "site.user", "site.user", s.User)
	if s.Name == c.Cluster {
		l.add("site.name", "site.name %q is this cluster: name the other one", s.Name)
	}
	if err := cluster.SiteAddresses(strings.Join(s.Nodes, ",")); err != nil {
		l.add("site.nodes", "site.nodes: %v: write the readers' ports of the other cluster, such as [\"b1:7403\", \"b2:7403\"]", err)
	}
	if !filepath.IsAbs(s.PasswordFile) {
		l.add("site.password_file", "site.password_file %q is not an absolute path: write a path that starts with /", s.PasswordFile)
	}
	switch {
	case s.Plain && s.CAFile != "":
		l.add("site.plain", "[site] has ca_file and plain: leave one out")
	case s.Plain && !s.here():
		l.add("site.plain", "site.plain is for sites on this host: other hosts need ca_file")
	case !s.Plain && !filepath.IsAbs(s.CAFile):
		l.add("site.ca_file", "site.ca_file %q is not an absolute path: name the file with the authority of the other site's certificates", s.CAFile)
	}
}

// here tells whether all nodes are on this host.
func (s Site) here() bool {
	for _, node := range s.Nodes {
		host, _, err := net.SplitHostPort(node)
		if ip, errIP := netip.ParseAddr(host); err != nil || errIP != nil || !ip.IsLoopback() {
			return false
		}
	}
	return true
}
