package process

import "fmt"

// CursorError reports that a stream cannot continue without a gap.
type CursorError struct {
	Field   string // the field of the request
	Message string // why
	Oldest  string // the oldest cursor that works
}

func (e *CursorError) Error() string {
	return fmt.Sprintf("%s: %s; the oldest cursor that works is %s", e.Field, e.Message, e.Oldest)
}
