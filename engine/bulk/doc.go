// Package bulk applies an action to all processes of a namespace that match a filter.
//
// A bulk is a process of kind bulk with the ID ~bulk/BULK_ID, in the namespace of the processes.
// Its metadata contains the request, its state the progress, and its events the failures. Each of
// its tasks handles a page of processes and sets a timer for the next page, so the bulk continues
// on any live node. A page that was handled but not stored is handled again, which has no further
// effect.
//
// Start with bulk.go and run.go.
package bulk
