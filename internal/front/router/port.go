package router

// These texts for clients and the log depend on the purpose of the port.

// lack says what a client waits for.
func (r *Router) lack() string {
	if r.config.ReadOnly {
		return "no replica may be read: none is there, or all lag too far behind (router.read_max_lag)"
	}
	return "no primary"
}

// notHere says why another node would take a client.
func (r *Router) notHere() string {
	if r.config.ReadOnly {
		return "another node is one to read from"
	}
	return "another node is the primary"
}

// notServing says why a client's chunk was not passed on.
func (r *Router) notServing() string {
	if r.config.ReadOnly {
		return "this node is a replica no more"
	}
	return "the lease has run out, so another node may be primary"
}
