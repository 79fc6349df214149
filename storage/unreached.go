package storage

import (
	"encoding/json"
	"fmt"
	"time"
)

// Unreached is how a job has waited for its processor, which could not be reached.
type Unreached struct {
	Attempt int32     `json:"attempt"` // that was not used up
	Tries   int32     `json:"tries"`
	Since   time.Time `json:"since"` // time of the first try
	Cause   string    `json:"cause"` // error of the last try
}

// UnreachedOf reads an Unreached from its column. It returns the zero value if that is NULL.
func UnreachedOf(text []byte) (u Unreached, err error) {
	if len(text) == 0 {
		return u, nil
	}
	if err := json.Unmarshal(text, &u); err != nil {
		return u, fmt.Errorf("unreached of a job: %w", err)
	}
	return u, nil
}
