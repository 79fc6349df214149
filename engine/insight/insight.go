package insight

import (
	"log/slog"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/storage"
)

// Insight answers questions about the processes, namespaces and nodes of a database. It is safe for
// concurrent use.
type Insight struct {
	engine  *engine.Engine
	store   *storage.Store
	log     *slog.Logger
	samples sampleHistory
}

// New returns the Insight of an engine, and registers the metrics that read the database. The
// caller must run Sample.
func New(e *engine.Engine) *Insight {
	cfg := e.Config()
	i := &Insight{engine: e, store: cfg.Store, log: cfg.Logger}
	if cfg.Registerer != nil {
		storage.Register(cfg.Registerer,
			&depthsCollector{insight: i}, &growthCollector{insight: i}, &failingCollector{insight: i})
	}
	return i
}
