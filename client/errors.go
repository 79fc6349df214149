package client

import (
	"errors"

	"connectrpc.com/connect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Detail is what the engine says about an error: its reason, the process, the task, and the processor's failure or
// rejection. It is nil for errors that are not the engine's, such as a refused connection; its getters work on nil.
func Detail(err error) *progressorv1.ErrorDetail {
	var connectErr *connect.Error
	if !errors.As(err, &connectErr) {
		return nil
	}
	for _, d := range connectErr.Details() {
		value, valueErr := d.Value()
		if valueErr != nil {
			continue
		}
		if detail, ok := value.(*progressorv1.ErrorDetail); ok {
			return detail
		}
	}
	return nil
}

// Reason is the reason of Detail(err): REASON_UNSPECIFIED where there is none, and for nil.
func Reason(err error) progressorv1.ErrorDetail_Reason { return Detail(err).GetReason() }
