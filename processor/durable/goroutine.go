package durable

import (
	"runtime"
	"slices"
	"sync/atomic"
)

// goroutine identifies a goroutine that runs user code, by the outermost frames of its stack. They
// encode its number. The runtime also numbers goroutines, but only runtime.Stack returns the
// number, and it formats the whole stack. This took 16% of the CPU time of runs with one step.
type goroutine struct {
	frames []uintptr // from the last mark to the outermost frame
}

// goroutines counts goroutines. Their numbers repeat after 4,096 goroutines (base to the power of
// digits), so isCurrent confuses a goroutine with one in 4,096 others.
var goroutines atomic.Uint32

// run calls f in the calling goroutine.
func (g *goroutine) run(f func()) {
	mark(goroutines.Add(1), calls{mark, mark, func(uint32, calls) {
		var frames [usualDepth]uintptr
		g.frames = slices.Clone(stack(frames[:])[1:])
		f()
	}})
}

// root is the index of the frame of run.
const root = digits

// hasRoot reports whether the stack of the calling goroutine has the frame of run at the same
// distance from its outermost frame as that of g. It does not compare the number. A replay calls
// hasRoot for each entry, so hasRoot makes no further calls unless the stack is deep.
func (g *goroutine) hasRoot() bool {
	var frames [usualDepth]uintptr
	s := frames[:runtime.Callers(1, frames[:])]
	if len(s) == usualDepth {
		s = stack(s)
	}
	above := len(s) - len(g.frames)
	return above >= 0 && s[above+root] == g.frames[root]
}

// isCurrent reports whether g is the calling goroutine.
func (g *goroutine) isCurrent() bool {
	var frames [usualDepth]uintptr
	s := stack(frames[:])
	above := len(s) - len(g.frames)
	return above >= 0 && slices.Equal(s[above:], g.frames)
}

// usualDepth is a depth that most stacks do not reach, in frames.
const usualDepth = 64

// stack returns the frames of the calling goroutine, the innermost one first. The first frame is
// that of the caller of stack. The result uses the array of frames unless the stack is deeper.
func stack(frames []uintptr) []uintptr {
	for ; ; frames = make([]uintptr, 4*len(frames)) {
		if n := runtime.Callers(2, frames); n < len(frames) {
			return frames[:n]
		}
	}
}

// A number has digits digits to the base base.
const (
	digits = 3
	base   = 16
)

// calls are functions that call each other in turn: one mark for each digit, and a last function.
type calls []func(number uint32, rest calls)

// mark encodes the last digit of number in the stack: a frame contains the address to which its
// callee returns, and each digit has its own call.
func mark(number uint32, rest calls) {
	switch number % base {
	case 0:
		rest[0](number/base, rest[1:])
	case 1:
		rest[0](number/base, rest[1:])
	case 2:
		rest[0](number/base, rest[1:])
	case 3:
		rest[0](number/base, rest[1:])
	case 4:
		rest[0](number/base, rest[1:])
	case 5:
		rest[0](number/base, rest[1:])
	case 6:
		rest[0](number/base, rest[1:])
	case 7:
		rest[0](number/base, rest[1:])
	case 8:
		rest[0](number/base, rest[1:])
	case 9:
		rest[0](number/base, rest[1:])
	case 10:
		rest[0](number/base, rest[1:])
	case 11:
		rest[0](number/base, rest[1:])
	case 12:
		rest[0](number/base, rest[1:])
	case 13:
		rest[0](number/base, rest[1:])
	case 14:
		rest[0](number/base, rest[1:])
	case 15:
		rest[0](number/base, rest[1:])
	}
}
