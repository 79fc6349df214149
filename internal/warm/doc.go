// Package warm reuses goroutines whose stacks have grown. In a new goroutine, the stack grows four
// times before the engine calls a processor. Copying the stacks took 3% of the CPU time of the
// engine.
package warm
