package processor

import (
	"context"
	"os"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// CheckAddressVariable is the name of an environment variable that `progressor deploy check` sets
// when it starts the program. Its value is an address, such as 127.0.0.1:4711. If it is set, Serve
// and client.Worker.Run handle only checks, on this address, without TLS and middleware. A worker
// does not poll.
const CheckAddressVariable = "PROGRESSOR_CHECK_ADDRESS"

// CheckTimer is the timer_name of a check: a request that is not a task, but asks a durable
// function what it would do with a process (see processor/durable/durablecheck). No timer of a
// durable function has this name, because the names of these timers contain no colon.
const CheckTimer = "durable:check"

// IsCheck reports whether a request is a check. A processor must not have side effects when it
// handles a check.
func IsCheck(req *progressorv1.ProcessRequest) bool {
	return req.GetType() == progressorv1.TaskType_TASK_TYPE_UNSPECIFIED && req.GetTimerName() == CheckTimer
}

// CheckAddress returns the address on which the program must serve checks, and nothing else. ok is
// false if `progressor deploy check` has not started the program.
func CheckAddress() (addr string, ok bool) {
	addr = os.Getenv(CheckAddressVariable)
	return addr, addr != ""
}

// ChecksOnly returns a processor that passes only checks to p. It rejects all tasks.
func ChecksOnly(p Processor) Processor {
	return Func(func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if !IsCheck(req) {
			return nil, Reject(ReasonNotHandled, "progressor deploy check has started the program: it runs no tasks")
		}
		return p.Process(ctx, req)
	})
}
