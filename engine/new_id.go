package engine

import (
	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
)

// NewID returns an ID for a process, job or run whose client has chosen none. IDs grow with time,
// so that new rows are neighbors in the indexes.
func NewID() (string, error) {
	id, err := uuid.NewV7()
	return process.ShortID(id), err
}
