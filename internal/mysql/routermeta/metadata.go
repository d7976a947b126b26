package routermeta

import "slices"

// Metadata is what Router is told.
type Metadata struct {
	// ClusterID has at most 36 bytes. Router keeps it in its own files.
	ClusterID, Cluster string
	// View grows with each change. Router believes the server with the highest view, and no server with a
	// lower view than it has seen.
	View      uint32
	Instances []Instance
}

// Instance is a member's mysqld.
type Instance struct {
	// Name is the name of the node.
	Name string
	// UUID is the server_uuid of its mysqld.
	UUID string
	// Address is the host:port where clients reach it.
	Address string
	Primary bool
	// Hidden says that Router reads metadata from it, but sends it no clients, and ends the sessions
	// that it has there.
	Hidden bool
}

// Same tells whether both have the same members, without regard to View.
func (m Metadata) Same(o Metadata) bool {
	return m.ClusterID == o.ClusterID && m.Cluster == o.Cluster && slices.Equal(m.Instances, o.Instances)
}

// Instance returns the instance of a name; false if there is none.
func (m Metadata) Instance(name string) (Instance, bool) {
	i := slices.IndexFunc(m.Instances, func(i Instance) bool { return i.Name == name })
	if i < 0 {
		return Instance{}, false
	}
	return m.Instances[i], true
}

// Primary returns the name of the primary; "" if there is none.
func (m Metadata) Primary() string {
	for _, i := range m.Instances {
		if i.Primary {
			return i.Name
		}
	}
	return ""
}
