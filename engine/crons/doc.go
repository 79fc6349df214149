// Package crons starts runs on schedules. A cron is a process of kind cron with the ID
// ~cron/CRON_ID. Its state contains its definition and the State of package cron, and its timer is
// set to the next fire time.
//
// A fire, a request of a client and the end of a run are tasks of that process. Each task stores
// its decision in one transaction: rows of the ledger (the history of fires), starts and cancels of
// runs, and the next timer. The decisions are made by package cron, which is pure.
//
// Start with crons.go (requests) and task.go (tasks).
package crons
