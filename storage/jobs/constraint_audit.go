package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/storage"
)

// constraintJSON returns a constraint for the audit, or nil if it does not exist.
func constraintJSON(ctx context.Context, db storage.DB, namespace, name string) ([]byte, error) {
	all, err := readConstraints(ctx, db, namespace)
	if err != nil {
		return nil, err
	}
	for n := range all {
		if all[n].Name == name {
			return all[n].json(), nil
		}
	}
	return nil, nil
}

// json returns a constraint with the names of the API.
func (c *Constraint) json() []byte {
	fields := map[string]any{"match": c.Match, "key": c.Key, "maxRunning": c.MaxRunning}
	if c.RateCount > 0 {
		fields["rate"] = map[string]any{"count": c.RateCount, "per": c.RatePer.String(), "burst": c.RateBurst}
	}
	return storage.ConfigJSON(fields)
}
