// Package flow compiles templates of flows and decides how their runs proceed. It is pure: it uses
// no clock and no storage.
//
// Compile checks a template. It returns all problems with their paths, or a Template with
// everything that a decision needs: the steps by index, their dependencies, and the compiled
// expressions. The methods of Template evaluate expressions in a Scope, which contains the facts
// about a run at that moment. Results of steps are only loaded if an expression refers to them.
//
// Expressions are CEL. Most expressions in values are plain paths (payload.user.id,
// steps.a.result.url), which are resolved without CEL. Compiling a template of 1,000 steps takes 6
// to 11 ms, plus 90 µs for each distinct CEL expression. A filter over 10,000 items takes 20 ms,
// and a value without expressions 5 ns (on a shared Xeon).
package flow
