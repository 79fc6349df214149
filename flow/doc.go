// Package flow says what a template of a flow means. It is pure: no clock, no storage.
//
// Compile checks a template as a whole, answers with every problem and its path, and makes of it what a decision needs: the steps by
// index, who waits for whom, and each expression ready to be evaluated. Its methods evaluate in a Scope, which is what a run knows at that
// moment; results of steps are asked for only where an expression names them.
//
// Expressions are CEL. Most of those that people write in values are plain paths (payload.user.id, steps.a.result.url): these are
// resolved without CEL. A template of 1,000 steps takes 6 to 11 ms to compile, and 90 µs more for each expression that is CEL and
// stands in it for the first time; a filter over 10,000 items takes 20 ms, a value without expressions 5 ns (on a shared Xeon).
package flow
