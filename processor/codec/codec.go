package codec

import (
	"context"
	"errors"
)

// Codec converts payloads to the form in which they are stored, and back. It must be safe for
// concurrent use and must not modify the content that it gets. An error that wraps none of the
// errors of this package means that the codec is not available at the moment: see Unavailable.
type Codec interface {
	// Encode returns the encoded form of p.Content.
	Encode(ctx context.Context, p Payload) ([]byte, error)
	// Decode returns the content that Encode got with the same purpose. p.Repeat is empty. The
	// error wraps ErrPlain if p.Content is not a result of Encode.
	Decode(ctx context.Context, p Payload) ([]byte, error)
}

// Payload is the argument of Encode and Decode.
type Payload struct {
	Content []byte
	Purpose Purpose
	// Repeat is set in Encode if the engine compares the result with that of another Encode, for
	// example because the request has an idempotency key. Two calls with equal payloads, including
	// Repeat, must return equal results. This is not required for payloads with different values of
	// Repeat.
	Repeat string
}

// Purpose is the use of a payload. A payload of one purpose must not be decoded as another one.
// Otherwise a person with access to the database could use an event as a state.
type Purpose string

// The purposes.
const (
	State   Purpose = "state"   // a state of a process
	Event   Purpose = "event"   // an event in the history of a process
	Context Purpose = "context" // a context of a request, which the engine passes to timers
	// Message is the purpose of args, responses, results and details. The engine passes them on:
	// the result of one step of a run can be the args of the next one.
	Message Purpose = "message"
)

// Errors of a Codec. Use errors.Is, because they are wrapped.
var (
	ErrPlain      = errors.New("the payload is not encoded")
	ErrTruncated  = errors.New("the encoded payload is truncated")
	ErrUnknownKey = errors.New("the payload was encoded with an unknown key")
	// ErrInvalid means that the payload was changed, that it has another purpose, or that another
	// key has the same ID.
	ErrInvalid = errors.New("the encoded payload is not valid for its key and purpose")
)

// codecError is an error that a Codec has returned, in contrast to an error about the values to
// encode.
type codecError struct{ err error }

func (e *codecError) Error() string { return e.err.Error() }

// Unwrap returns the error of the Codec.
func (e *codecError) Unwrap() error { return e.err }

func ofCodec(err error) error {
	if err == nil {
		return nil
	}
	return &codecError{err}
}

// Unavailable reports whether an error of Payloads means that the Codec could not work, for example
// because its keys could not be reached or the context had ended. Another attempt may succeed.
func Unavailable(err error) bool {
	if _, ok := errors.AsType[*codecError](err); !ok {
		return false
	}
	for _, final := range []error{ErrPlain, ErrTruncated, ErrUnknownKey, ErrInvalid} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}
