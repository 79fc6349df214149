// Package durable runs a process that is written as a plain Go function. The function survives
// crashes and deploys, and waits for days. To the engine it is an ordinary processor.Processor:
// built in, pushed or pulled.
//
//	var Order = durable.Func("order", order)
//
//	func order(ctx durable.Ctx, in OrderIn) (Receipt, error) {
//		hold, err := durable.Step(ctx, "reserve", reserve, durable.Undo(release))
//		if err != nil {
//			return Receipt{}, err
//		}
//		durable.Sleep(ctx, "return-period", 14*24*time.Hour)
//		…
//	}
//
// The events of the process are the journal of the function. A task replays the function from the
// start: an operation whose entry is in the journal returns the recorded value, without an effect.
// In the engine's program, a function that waits stays in memory, and the next task continues it
// without a replay if nothing else has changed the process. An entry is found by the name of its
// operation and not by its position. Therefore steps may be inserted, removed or moved while
// processes run. The second use of a name in a scope is name#2.
//
// Between operations, the function must be deterministic: it uses Now, UUID and Rand instead of the
// clock and random numbers, and does all I/O in the bodies of steps. Operations do not panic.
// Misuse, such as an operation in another goroutine or in the body of a step, fails the task with a
// message that names the file and line. With a Ctx of another process that runs at the same time,
// only operations that change something fail.
//
// A step whose result is stored never runs again. A crash after its body returned and before its
// result was stored repeats the body: StepKey returns a key that makes its effects idempotent.
// Checkpoints store the results of steps, so that a task can run many. If the engine pushes the
// tasks and the settings for checkpoints are missing (see processor.WithCheckpoints), each step
// takes one task, because a result ends a task.
//
// The namespace must have history_mode FULL, which is the default. docs/journal.md describes the
// journal. Package durabletest tests functions. Start with function.go, then run.go.
package durable
