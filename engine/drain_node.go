package engine

import (
	"context"
	"fmt"
	"strconv"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// DrainNode tells a node to take no new tasks and to finish the running ones. The request is stored
// in the row of the node. The node reads the request with its next heartbeat. The node keeps
// running until it is stopped.
func (e *Engine) DrainNode(ctx context.Context, nodeID string, by process.Actor) (*progressorv1.Node, error) {
	id, err := strconv.ParseInt(nodeID, 10, 64)
	if err != nil {
		return nil, &process.InvalidError{
			Field: "node_id", Message: "must be the ID of a node, as returned by ListNodes",
		}
	}
	row, err := e.store.DrainNode(ctx, id, by)
	if err != nil {
		return nil, fmt.Errorf("node %d: %w", id, err)
	}
	if id == e.store.NodeID() {
		e.beginDrain()
	}
	return wire.Node(&row), nil
}
