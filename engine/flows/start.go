package flows

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/flows"
)

// mayStart reads the template of a StartRun and returns an error if the template does not allow the
// start. If a run with the same idempotency key exists, it is the same request again and allowed,
// even if the template has changed.
func (f *Flows) mayStart(ctx context.Context, r *progressorv1.StartRunRequest) (*template, error) {
	t, err := f.template(ctx, r.GetNamespace(), r.GetType(), r.GetVersion())
	if err != nil {
		if errors.Is(err, process.ErrTemplateNotFound) {
			if missing := f.engine.CheckNamespace(ctx, r.GetNamespace()); missing != nil {
				return nil, missing
			}
		}
		return nil, err
	}
	var no error
	if problems := t.CheckPayload(r.GetPayload()); !t.enabled {
		no = &TemplateError{fmt.Sprintf("template %s is disabled: enable it first", r.GetType())}
	} else if len(problems) > 0 {
		no = breaksSchema(problems)
	}
	if no == nil || r.GetIdempotencyKey() == "" || r.GetValidateOnly() {
		return t, no
	}
	runID, err := runIDOf(r)
	if err != nil {
		return nil, err
	}
	known, err := flows.IsRequest(ctx, f.store, keyOf(r.GetNamespace(), runID), r.GetIdempotencyKey())
	if err != nil {
		return nil, err
	} else if !known {
		return nil, no
	}
	return t, nil
}

// starting caches the templates that open StartRun requests to this node have read. The INIT task
// of such a run, which follows at once, need not read the template again.
type starting struct {
	mu  sync.Mutex
	all map[process.Key]read
}

// read is a template with the time when it was read.
type read struct {
	*template
	at time.Time
}

// stillRead is how long a cached template may be used. An INIT task that had to wait longer for a
// slot reads the template again, because it may have been deleted.
const stillRead = time.Second

// put caches the template that a request has read, until the returned function is called.
func (s *starting) put(key process.Key, t *template) (answered func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[process.Key]read{}
	}
	s.all[key] = read{t, time.Now()}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, key)
	}
}

// get returns the template for a command to start, or nil if no request on this node has just read
// it.
func (s *starting) get(key process.Key, o *command) *template {
	s.mu.Lock()
	t, known := s.all[key]
	s.mu.Unlock()
	if !known || time.Since(t.at) > stillRead || t.Source.GetType() != o.Type || t.Source.GetVersion() != o.Version {
		return nil
	}
	return t.template
}
