// Package cron computes when a cron fires, and decides what each fire does. It is pure: no I/O, no
// clock, no storage, and no imports outside the standard library.
//
// Parse and Compile turn expressions into a Schedule. Cron implementations differ. Here, days of
// the month and of the week have the meaning of Vixie's cron and POSIX. L, LW, 15W, FRI#3 and 5L
// have the meaning of Quartz. When the clock changes, a Schedule behaves like Vixie's cron (see
// DaylightSaving).
//
// Cron decides. It takes a State and an event (Tick, Ended, Trigger, Backfill, Pause, Resume) and
// returns a Step: ledger rows, runs to start and to cancel, the new State, and when to call Tick
// again. The caller stores them. testdata/decisions.txt lists the rules with all combinations.
package cron
