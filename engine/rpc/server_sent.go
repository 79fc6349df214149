package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// keepAlive is the interval at which a stream sends a comment, so that proxies do not close it
// while it is idle.
const keepAlive = 15 * time.Second

// changePage serves WatchChanges as Server-Sent Events, for curl and browsers. The ID of an event
// is the cursor from which the stream continues after this event. Browsers send the last ID that
// they received when they reconnect.
type changePage struct {
	streams *streams.Streams
	clients *clients
	log     *slog.Logger
	access  *authorization
}

// ServeHTTP streams changes until the client disconnects, or until the end that the request asks
// for.
func (p *changePage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := changesRequest(r)
	if err == nil {
		err = CheckRules(request)
	}
	const procedure = progressorv1connect.ChangeServiceWatchChangesProcedure
	if err == nil {
		_, err = p.access.check(r.Context(), procedure, request)
	}
	client := clientOf(r.Context(), r.RemoteAddr)
	if err == nil {
		err = p.clients.enter(client, classStream)
	}
	if err != nil {
		p.refuse(w, r, request, err)
		return
	}
	defer p.clients.leave(client, classStream)
	ctx, end := context.WithCancelCause(r.Context())
	cancel := func() { end(nil) }
	defer cancel()
	go p.access.follow(ctx, procedure, request, func(access) {}, end)
	s := &serverSent{writer: w, control: http.NewResponseController(w), cancel: cancel}
	wait := s.keepAlive(ctx)
	err = p.streams.Watch(ctx, request, s.send)
	if denied, ok := errors.AsType[*connect.Error](context.Cause(ctx)); ok { // set by follow
		err = denied
	}
	cancel()
	wait()
	switch {
	case err == nil || r.Context().Err() != nil: // the client has disconnected, or all changes were sent (stop=true)
	case s.began:
		connectErr, _ := toConnect(err, request)
		text, _ := json.Marshal(connectErr.Message()) // cannot fail: a string
		_ = s.event("error", "", text)                // if this fails, the client has disconnected
	default:
		p.refuse(w, r, request, err)
	}
}

// refuse responds to a request that fails before the stream begins. The response has the message of
// the API error, and the HTTP status of its code.
func (p *changePage) refuse(
	w http.ResponseWriter, r *http.Request, request *progressorv1.WatchChangesRequest, err error,
) {
	connectErr, internal := toConnect(err, request)
	if internal {
		p.log.WarnContext(r.Context(), "request ended with an internal error", "method", "/changes", "error", err)
	}
	status := http.StatusInternalServerError
	switch connectErr.Code() {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		status = http.StatusBadRequest
	case connect.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case connect.CodePermissionDenied:
		status = http.StatusForbidden
	case connect.CodeNotFound:
		status = http.StatusNotFound
	case connect.CodeResourceExhausted:
		status = http.StatusTooManyRequests
	case connect.CodeUnavailable:
		status = http.StatusServiceUnavailable
	default:
	}
	page(w, status, connectErr.Message())
}

// changeParameters are the parameters that the URL may contain.
var changeParameters = []string{"namespace", "cursor", "from", "kinds", "process_id", "stop"}

// changesRequest reads the parameters of the URL. The header Last-Event-ID, which a browser sends
// when it reconnects, replaces the parameter cursor. With a cursor, the parameter from is ignored.
func changesRequest(r *http.Request) (*progressorv1.WatchChangesRequest, error) {
	query := r.URL.Query()
	for name := range query {
		if !slices.Contains(changeParameters, name) {
			return nil, invalid(name, "unknown parameter; use one of "+strings.Join(changeParameters, ", "))
		}
	}
	request := &progressorv1.WatchChangesRequest{
		Namespace: query.Get("namespace"), ProcessId: query.Get("process_id"),
		Cursor: cmp.Or(r.Header.Get("Last-Event-ID"), query.Get("cursor")),
	}
	if from := query.Get("from"); from != "" && request.GetCursor() == "" {
		at, err := time.Parse(time.RFC3339, from)
		if err != nil {
			return nil, invalid("from", "must be a time such as 2026-11-26T10:00:00Z")
		}
		request.FromTime = timestamppb.New(at)
	}
	if err := changeKinds(request, query); err != nil {
		return nil, err
	}
	switch query.Get("stop") {
	case "", "false":
	case "true":
		request.Stop = true
	default:
		return nil, invalid("stop", "must be true or false")
	}
	return request, nil
}

// changeKinds reads the parameter kinds: names that are separated by commas.
func changeKinds(request *progressorv1.WatchChangesRequest, query url.Values) error {
	for name := range strings.SplitSeq(query.Get("kinds"), ",") {
		if name == "" {
			continue
		}
		kind, known := progressorv1.ChangeKind_value["CHANGE_KIND_"+strings.ToUpper(name)]
		if !known || kind == 0 {
			return invalid("kinds", fmt.Sprintf(
				"unknown kind %q; use one of event, lifecycle, job, step, run, fire", name))
		}
		request.Kinds = append(request.Kinds, progressorv1.ChangeKind(kind))
	}
	return nil
}

func invalid(field, message string) error {
	return &process.InvalidError{Field: field, Message: message}
}

// serverSent writes Server-Sent Events.
type serverSent struct {
	mu      sync.Mutex
	writer  http.ResponseWriter
	control *http.ResponseController
	cancel  context.CancelFunc // ends the stream
	began   bool               // something was written, so the status of the response is 200
}

// send writes the changes of a response, one event each. Only the last event has the cursor, which
// is the position after all of the changes.
func (s *serverSent) send(response *progressorv1.WatchChangesResponse) error {
	if len(response.GetChanges()) == 0 {
		return s.event("cursor", response.GetCursor(), []byte("{}"))
	}
	for n, change := range response.GetChanges() {
		text, err := protojson.Marshal(change)
		if err != nil {
			return fmt.Errorf("encode change %d: %w", change.GetChangeId(), err)
		}
		id := ""
		if n == len(response.GetChanges())-1 {
			id = response.GetCursor()
		}
		if err := s.event("", id, text); err != nil {
			return err
		}
	}
	return nil
}

// event writes one event. name and id are optional. data must not contain line breaks.
func (s *serverSent) event(name, id string, data []byte) error {
	var text strings.Builder
	if name != "" {
		text.WriteString("event: " + name + "\n")
	}
	if id != "" {
		text.WriteString("id: " + id + "\n")
	}
	text.WriteString("data: " + string(data) + "\n\n")
	return s.write(text.String())
}

func (s *serverSent) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began {
		s.began = true
		header := s.writer.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-store")
		header.Set("X-Accel-Buffering", "no")
		header.Set("X-Content-Type-Options", "nosniff")
	}
	if _, err := s.writer.Write([]byte(text)); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}

// keepAlive sends comments until ctx is done. If that fails, it ends the stream. wait returns when
// keepAlive writes nothing more.
func (s *serverSent) keepAlive(ctx context.Context) (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(keepAlive)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if s.write(": \n\n") != nil {
					s.cancel()
					return
				}
			}
		}
	}()
	return func() { <-ended }
}
