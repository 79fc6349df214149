package durablecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// AddressVariable is the environment variable by which `progressor deploy check --cmd` asks a
// program to serve checks. If it is set, processor.Serve and client.Worker.Run serve only checks,
// on this address.
const AddressVariable = processor.CheckAddressVariable

// reportField is the field of the metadata that contains the report.
const reportField = "durable_check"

// ErrUnsupported is the error of a program that does not answer checks.
var ErrUnsupported = errors.New("the program does not answer checks: it must serve a durable function in Go, " +
	"built with this version of Progressor or a later one")

// Request returns the request for a check of a process. The process must have its complete history.
func Request(p *progressorv1.Process) *progressorv1.ProcessRequest {
	p = proto.CloneOf(p)
	p.AuxState = nil // functions do not read it
	return &progressorv1.ProcessRequest{Process: p, TimerName: processor.CheckTimer}
}

// Run asks a build for its report about a process.
func Run(ctx context.Context, build processor.Processor, p *progressorv1.Process) (Report, error) {
	resp, err := build.Process(ctx, Request(p))
	if err != nil {
		return Report{}, err
	}
	switch {
	case resp.GetRejection() != nil:
		r := resp.GetRejection()
		return Report{}, unanswered(r.GetReason(), r.GetMessage())
	case resp.GetFailure() != nil:
		return Report{}, unanswered(resp.GetFailure().GetReason(), resp.GetFailure().GetMessage())
	}
	value, ok := resp.GetResult().GetMetadata().GetFields()[reportField]
	if !ok {
		return Report{}, ErrUnsupported
	}
	text, err := value.MarshalJSON()
	if err != nil {
		return Report{}, err
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil {
		return Report{}, fmt.Errorf("read the report of the program: %w", err)
	}
	return report, nil
}

// unanswered returns the error of a build that has answered without a report.
func unanswered(reason, message string) error {
	switch reason {
	case processor.ReasonNotHandled, processor.ReasonBadArgs, "durable_journal": // older builds and other languages
		return fmt.Errorf("%w (it answered %s: %s)", ErrUnsupported, reason, message)
	default:
		return &FailedError{reason, message}
	}
}

// FailedError is the error of a program that answers checks, but cannot check this process.
type FailedError struct{ Reason, Message string }

func (e *FailedError) Error() string {
	return fmt.Sprintf("the program cannot check the process: %s: %s", e.Reason, e.Message)
}

// Response returns the answer to a request.
func (r Report) Response() (*progressorv1.ProcessResponse, error) {
	text, err := json.Marshal(map[string]Report{reportField: r})
	if err != nil {
		return nil, err
	}
	metadata := &structpb.Struct{}
	if err := metadata.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{
		Result: &progressorv1.Result{Metadata: metadata},
	}}, nil
}
