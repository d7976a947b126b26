// Package scheduler keeps mysqld's event scheduler: it runs only on the primary, where each event has the status that
// package events says. A Service looks once a second, and when the node's status or the cluster state changes. While the
// cluster follows a source, events run at the source, and the scheduler is off here.
//
// Service.Run is one goroutine, and only that uses the Service's state. What is durable is in mysqld's own table
// (mysqld.EventsSchema), and replicated with the rest.
package scheduler
