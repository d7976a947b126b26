// Package page has no code. Its test opens the page of an agent in Chromium while clients write to the cluster, and
// watches a switchover, a failover and the agent's end there. It is in the lab because
// the product needs no browser.
package page
