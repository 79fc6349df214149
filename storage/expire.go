package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// expireBatch is how many processes per namespace and status one transaction removes. It locks
// their rows for a few milliseconds.
const expireBatch = 100

// Expire removes processes whose retention is over, one batch per namespace. It returns the number
// of removed processes per namespace. PurgeRemoved removes their histories later.
func (s *Store) Expire(ctx context.Context, retention map[string]time.Duration) (map[string]int, error) {
	arg := dbsqlc.ExpireProcessesParams{Lim: expireBatch}
	for namespace, keep := range retention {
		arg.Namespaces = append(arg.Namespaces, namespace)
		arg.RetentionsUs = append(arg.RetentionsUs, keep.Microseconds())
	}
	if len(arg.Namespaces) == 0 {
		return nil, nil
	}
	rows, err := s.q.ExpireProcesses(ctx, s.general, arg)
	if err != nil {
		return nil, mapped("expire processes", err)
	}
	expired := map[string]int{}
	for _, r := range rows {
		expired[r.Namespace]++
	}
	return expired, nil
}
