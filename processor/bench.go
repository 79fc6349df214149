package processor

import (
	"bytes"
	"context"
	"encoding/binary"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Sizes of what the bench processors return, in bytes.
const (
	BenchEventBytes    = 200
	BenchStateBytes    = 200
	BenchResponseBytes = 100
)

// BenchNoop returns the processor with which `progressor bench` measures the engine. It answers
// every task with an event of 200 bytes, a state of 200 bytes and a response of 100 bytes. The
// bytes are the same in every answer and look random, so that no store compresses them.
func BenchNoop() Processor {
	event, state, response := filler(BenchEventBytes, 1), filler(BenchStateBytes, 2), filler(BenchResponseBytes, 3)
	return Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return Result().Event(event).AuxState(state).Response(response).Done()
	})
}

// BenchLoop returns the processor of the loop workload: a chain of timers that are due at once, one
// task each. INIT reads the number of steps from its args (LoopArgs) and sets the first timer.
// Every TIMEOUT appends an event of 200 bytes, increments the counter in the state (200 bytes) and
// sets the next timer. After the last step the process is COMPLETED.
func BenchLoop() Processor {
	event, padding, response := filler(BenchEventBytes, 1), filler(BenchStateBytes, 2), filler(BenchResponseBytes, 3)
	step := func(left uint64) *ResultBuilder {
		state := bytes.Clone(padding)
		binary.BigEndian.PutUint64(state, left)
		result := Result().Event(event).AuxState(state)
		if left == 0 {
			return result.Complete()
		}
		return result.SetTimerAfter(0)
	}
	return &Router{
		OnInit: func(_ context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if len(req.GetArgs()) != 8 {
				return nil, Reject(ReasonBadArgs, "the args must be the number of steps, 8 bytes, big endian")
			}
			return step(binary.BigEndian.Uint64(req.GetArgs())).Response(response).Done()
		},
		OnTimeout: func(_ context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			state := req.GetProcess().GetAuxState()
			if len(state) != BenchStateBytes {
				return nil, Fail(ReasonBadState, "the state has %d bytes", len(state)).NonRetryable()
			}
			left := binary.BigEndian.Uint64(state)
			if left == 0 {
				return nil, Fail(ReasonBadState, "a timer fired after the last step").NonRetryable()
			}
			return step(left - 1).Done()
		},
	}
}

// LoopArgs returns the args of a Start that makes BenchLoop run this many TIMEOUT tasks in
// sequence.
func LoopArgs(steps uint64) []byte { return binary.BigEndian.AppendUint64(nil, steps) }

// filler returns n bytes that look random and depend only on seed (xorshift).
func filler(n int, seed uint64) []byte {
	text := make([]byte, 0, n+8)
	x := seed * 0x9E3779B97F4A7C15
	for len(text) < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		text = binary.LittleEndian.AppendUint64(text, x)
	}
	return text[:n:n]
}
