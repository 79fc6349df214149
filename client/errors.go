package client

import (
	"errors"

	"connectrpc.com/connect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Detail returns the engine's description of err: the reason, the process, the task, and the
// processor's failure or rejection. It returns nil if err does not come from the engine, such as a
// refused connection. The getters of the result work on nil.
func Detail(err error) *progressorv1.ErrorDetail {
	if detail := decodedDetail(err); detail != nil {
		return detail
	}
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

// Reason returns the reason of Detail(err). It is REASON_UNSPECIFIED if err is nil or has no
// detail.
func Reason(err error) progressorv1.ErrorDetail_Reason { return Detail(err).GetReason() }
