package durable

import (
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
)

// goroutine identifies a goroutine that runs user code. Its number is encoded in its stack, which
// begins with the caller of newGoroutine, run, and a call of mark0, mark1, mark2 or mark3 for each
// digit. The runtime has a number for each goroutine, too, but only runtime.Stack returns it, which
// formats the whole stack. This took 16% of the CPU time of runs with one step.
type goroutine struct {
	number uint16
	bottom int     // depth of the stack at the caller of newGoroutine, in frames
	root   uintptr // address of the caller of newGoroutine
}

// goroutines counts goroutines. Their numbers repeat after 65,536 goroutines.
var goroutines atomic.Uint32

// newGoroutine returns the calling goroutine. Its caller must call run.
func newGoroutine() *goroutine {
	var frames [usualDepth]uintptr
	s := stack(frames[:], 1)
	return &goroutine{number: uint16(goroutines.Add(1)), bottom: len(s), root: entryOf(s[0])}
}

// run calls f.
//
//go:noinline
func (g *goroutine) run(f func()) { marks[g.number%base](g.number/base, digits-1, f) }

// hasRoot reports whether the stack of the calling goroutine begins with the caller of
// newGoroutine. It does not compare the number.
func (g *goroutine) hasRoot() bool {
	var frames [usualDepth]uintptr
	s := stack(frames[:], 1)
	return len(s) > g.bottom && entryOf(s[len(s)-g.bottom]) == g.root
}

// isCurrent reports whether g is the calling goroutine.
func (g *goroutine) isCurrent() bool {
	var frames [usualDepth]uintptr
	s := stack(frames[:], 1)
	last := len(s) - g.bottom - 1 - digits // index of the last, most significant digit
	if last < 0 || entryOf(s[len(s)-g.bottom]) != g.root {
		return false
	}
	number := uint16(0)
	for _, frame := range s[last : last+digits] {
		digit := slices.Index(markEntries[:], entryOf(frame))
		if digit < 0 {
			return false
		}
		number = number*base + uint16(digit)
	}
	return number == g.number
}

// usualDepth is the depth of most stacks, in frames.
const usualDepth = 64

// stack returns the frames of the calling goroutine, the innermost one first. It begins skip frames
// above its caller. It uses the array of frames unless the stack is deeper.
func stack(frames []uintptr, skip int) []uintptr {
	for ; ; frames = make([]uintptr, 4*len(frames)) {
		if n := runtime.Callers(skip+2, frames); n < len(frames) {
			return frames[:n]
		}
	}
}

// entryOf returns the address of the function of a frame.
func entryOf(frame uintptr) uintptr { return runtime.FuncForPC(frame - 1).Entry() }

// A number has digits digits to the base base.
const (
	digits = 8
	base   = 4
)

type markFunc func(number uint16, left int, f func())

var (
	marks       [base]markFunc
	markEntries [base]uintptr
)

func init() {
	marks = [base]markFunc{mark0, mark1, mark2, mark3}
	for n, mark := range marks {
		markEntries[n] = reflect.ValueOf(mark).Pointer()
	}
}

// mark0 encodes the digit 0 in the stack, and calls the function of the next digit, or f.
func mark0(number uint16, left int, f func()) {
	if left == 0 {
		f()
		return
	}
	marks[number%base](number/base, left-1, f)
}

// mark1 is mark0 for the digit 1. All four have the same code, because only their addresses differ.
func mark1(number uint16, left int, f func()) {
	if left == 0 {
		f()
		return
	}
	marks[number%base](number/base, left-1, f)
}

// mark2 is mark0 for the digit 2.
func mark2(number uint16, left int, f func()) {
	if left == 0 {
		f()
		return
	}
	marks[number%base](number/base, left-1, f)
}

// mark3 is mark0 for the digit 3.
func mark3(number uint16, left int, f func()) {
	if left == 0 {
		f()
		return
	}
	marks[number%base](number/base, left-1, f)
}
