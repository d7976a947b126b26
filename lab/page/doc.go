// Package page has no code: its test opens the page of an agent in Chromium, beside a cluster that
// writes, and watches a switchover, a failover and the agent's end there. It is in the lab because
// the product needs no browser.
package page
