package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/format"
	"github.com/progressor-engine/progressor/processor/remote"
	"github.com/progressor-engine/progressor/processor/signature"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// maxBodyBytes limits how much of a response is read. Only the status counts. The body is read
	// so that the connection can be reused.
	maxBodyBytes = 64 << 10
	// shownBodyBytes limits how much of the response to a failed request an error quotes.
	shownBodyBytes = 200
)

// deliverer sends the changes of a sink.
type deliverer struct {
	settings
	client *http.Client

	mu       sync.Mutex
	accepted map[int64]bool // accepted changes of a failed batch, by change ID
}

// New returns the deliverer of a sink with a webhook. The deliverer encodes changes in the format
// f. If a setting is invalid, the error is a *process.InvalidError.
//
// The deliverer connects only to addresses that e allows. It follows no redirects. It uses no
// proxy, because a proxy would hide the address of the target from the check of addresses.
func New(m *progressorv1.Sink, f format.Format, e *remote.Egress) (sinks.Deliverer, error) {
	s, err := parse(m, f)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: s.timeout, ControlContext: e.Control}
	return &deliverer{settings: s, accepted: map[int64]bool{}, client: &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: s.concurrent,
			TLSClientConfig: s.security,
			IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: s.timeout, MaxResponseHeaderBytes: maxBodyBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes idle connections.
func (d *deliverer) Close() { d.client.CloseIdleConnections() }

// Deliver sends each change that was not accepted yet. It sends the changes of a process one after
// the other, and those of different processes concurrently.
func (d *deliverer) Deliver(ctx context.Context, changes []*progressorv1.Change) error {
	var order []string
	queues := map[string][]*progressorv1.Change{}
	for _, c := range changes {
		if d.isAccepted(c) {
			continue
		}
		id := c.GetProcessId()
		if queues[id] == nil {
			order = append(order, id)
		}
		queues[id] = append(queues[id], c)
	}
	b := &batch{deliverer: d}
	next := make(chan []*progressorv1.Change)
	var group sync.WaitGroup
	for range min(d.concurrent, len(order)) {
		group.Go(func() {
			for queue := range next {
				b.send(ctx, queue)
			}
		})
	}
	for _, id := range order {
		next <- queues[id]
	}
	close(next)
	group.Wait()
	if b.err != nil {
		return b.err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range changes {
		delete(d.accepted, c.GetChangeId())
	}
	return nil
}

func (d *deliverer) isAccepted(c *progressorv1.Change) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accepted[c.GetChangeId()]
}

// batch is one call of Deliver.
type batch struct {
	*deliverer
	// err is the error that Deliver returns, or nil. ErrGone replaces all other errors, and a
	// temporary error replaces a permanent one. Guarded by mu.
	err error
}

// send sends the changes of a process one after the other. It stops if one of them fails, or if a
// change of another process has failed with an error that is not permanent.
func (b *batch) send(ctx context.Context, queue []*progressorv1.Change) {
	for _, c := range queue {
		b.mu.Lock()
		failed := b.err != nil && !isPermanent(b.err)
		b.mu.Unlock()
		if failed {
			return
		}
		err := b.post(ctx, c)
		b.mu.Lock()
		switch {
		case err == nil:
			b.accepted[c.GetChangeId()] = true
		case b.err == nil || isPermanent(b.err) && !isPermanent(err) || errors.Is(err, sinks.ErrGone):
			b.err = err
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func isPermanent(err error) bool {
	_, ok := errors.AsType[*sinks.PermanentError](err)
	return ok
}

// post sends a change and evaluates the response.
func (d *deliverer) post(ctx context.Context, c *progressorv1.Change) error {
	m, err := format.Encode(c, d.format)
	if err != nil {
		return &sinks.PermanentError{Err: err}
	}
	limit, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(limit, http.MethodPost, d.url, bytes.NewReader(m.Body))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	for _, h := range m.HTTPHeaders() {
		request.Header.Set(h.Name, h.Value)
	}
	request.Header.Set("User-Agent", "progressor")
	signature.Sign(request.Header, messageID(c), time.Now(), m.Body, d.keys...)
	response, err := d.client.Do(request)
	if err != nil {
		return d.explain(limit, err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes)) // if the read fails, the status is still valid
	return responseError(response, body)
}

// messageID returns the webhook-id of a change. It is the same for each attempt. It contains the
// time, because a restore of the database may lose changes and reuse their numbers.
func messageID(c *progressorv1.Change) string {
	return fmt.Sprintf("change_%d_%d", c.GetChangeId(), c.GetTime().AsTime().UnixMicro())
}

// responseError returns the error of a response.
func responseError(r *http.Response, body []byte) error {
	text := strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), shownBodyBytes)]), "?"))
	err := fmt.Errorf("HTTP %s", r.Status)
	if text != "" {
		err = fmt.Errorf("HTTP %s: %s", r.Status, text)
	}
	switch {
	case r.StatusCode >= 200 && r.StatusCode <= 299:
		return nil
	case r.StatusCode == http.StatusGone:
		return fmt.Errorf("%w (%w)", sinks.ErrGone, err)
	case r.StatusCode == http.StatusRequestEntityTooLarge, r.StatusCode == http.StatusUnprocessableEntity:
		return &sinks.PermanentError{Err: err}
	}
	return err
}

// explain returns the error of a request without a response. It contains neither the URL, which may
// contain a secret, nor addresses of the engine's network.
func (d *deliverer) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no response within %s", d.timeout)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New(remote.FailureClass(err))
}
