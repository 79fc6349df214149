package insight

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// ListNodes lists the nodes in the database, including nodes that died within the last hour. It
// also works on a draining node.
func (i *Insight) ListNodes(ctx context.Context) ([]*progressorv1.Node, error) {
	rows, err := i.store.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]*progressorv1.Node, len(rows))
	for n := range rows {
		nodes[n] = wire.Node(&rows[n])
	}
	return nodes, nil
}
