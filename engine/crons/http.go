package crons

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/remote"
	"github.com/progressor-engine/progressor/processor/signature"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// httpTimeout is the timeout of a request if the policy has none.
	httpTimeout = 10 * time.Second
	// httpMargin is the part of the step timeout that is reserved for storing the result of a
	// request.
	httpMargin = time.Second
	// maxAnswerBytes limits how much of a response body is read. Only the status counts. The body
	// is read so that the connection can be reused.
	maxAnswerBytes = 64 << 10
	// cancelPoll is how often a run that waits for a response checks whether it was asked to end.
	// Its CANCEL task cannot run until the request ends.
	cancelPoll = time.Second
)

// The headers that describe the fire to the target.
const (
	headerCronID   = "Progressor-Cron-Id"
	headerFireTime = "Progressor-Fire-Time"
	headerAttempt  = "Progressor-Attempt"
)

// ownHeaders are the headers that a target cannot set: those of the engine and of the connection.
var ownHeaders = []string{
	headerCronID, headerFireTime, headerAttempt, "Connection", "Content-Length", "Transfer-Encoding", "Upgrade",
	"Trailer", "Te",
}

// checkHTTP validates an HTTP target.
func checkHTTP(t *progressorv1.HttpTarget) error {
	const field = "cron.target.http."
	to, err := url.Parse(t.GetUrl())
	switch {
	case err != nil:
		return invalid(field+"url", "must be a URL: %s", errors.Unwrap(err))
	case to.Hostname() == "" || to.Scheme != "http" && to.Scheme != "https":
		return invalid(field+"url", "must be http://HOST/PATH or https://HOST/PATH")
	case to.User != nil:
		return invalid(field+"url", "must not contain a user or a password: use the Authorization header")
	}
	if address, err := netip.ParseAddr(to.Hostname()); err == nil {
		if err := remote.Allowed(address); err != nil {
			return invalid(field+"url", "%s", err)
		}
	}
	if _, err := remote.TLSConfig(fieldTLS, t.GetTls(), "", t.GetUrl()); err != nil {
		return err
	}
	if t.GetMethod() != "" && !remote.IsToken(t.GetMethod()) {
		return invalid(field+"method", "%q is not a method: use one such as POST or GET", t.GetMethod())
	}
	for name, value := range t.GetHeaders() {
		at := field + "headers[" + strconv.Quote(name) + "]"
		switch {
		case !remote.IsToken(name):
			return invalid(at, "must be the name of a header: letters, digits and - are allowed")
		case slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)):
			return invalid(at, "must not be set: the engine sets it")
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return invalid(at, "must not contain a control character")
		}
	}
	return secrets.CheckHeaders(fieldHeaders, t.GetHeaders())
}

// request sends the request of a run. It returns nil if the run was asked to end in the meantime.
func (c *Crons) request(
	ctx context.Context, run process.Key, w *work, target *progressorv1.HttpTarget, deadline time.Time,
) (*outcome, error) {
	vault := c.engine.Secrets()
	headers, err := vault.OpenHeaders(ctx, run.Namespace, target.GetHeaders())
	var keys []signature.Key
	if err == nil {
		keys, err = vault.SigningKeys(ctx, run.Namespace, target.GetSigningSecrets())
	}
	var client *http.Client
	if err == nil {
		client, err = c.clientOf(ctx, run.Namespace, target)
	}
	if unusable, ok := errors.AsType[*process.InvalidError](err); ok {
		o := failed("%s", unusable)
		return &o, nil
	}
	if _, ok := errors.AsType[*secrets.UnusableError](err); ok {
		o := failed("%s", err)
		return &o, nil
	}
	if err != nil {
		return nil, err
	}
	limit := max(min(w.requestTimeout(), time.Until(deadline)-httpMargin), time.Millisecond)
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cancelled := make(chan struct{})
	go c.watchCancel(timed, run, cancelled, cancel)
	answer, err := ask(timed, client, w, target, headers, func(header http.Header) {
		if len(keys) > 0 {
			signature.Sign(header, messageID(run.Namespace, w), time.Now(), target.GetBody(), keys...)
		}
	})
	if err == nil {
		return answer, nil
	}
	select {
	case <-cancelled:
		return nil, nil
	default:
	}
	switch {
	case ctx.Err() != nil: // the node is stopping; another one repeats the request
		return nil, ctx.Err()
	case errors.Is(timed.Err(), context.DeadlineExceeded) && limit == w.Timeout:
		return &outcome{cron.Timeout, passedTimeout(limit)}, nil // the same text as in task.timerFired
	case errors.Is(timed.Err(), context.DeadlineExceeded):
		if stalled, ok := errors.AsType[*bodyError](err); ok {
			return &outcome{cron.Timeout, stalled.stalledFor(limit)}, nil
		}
		return &outcome{cron.Timeout, "no response within " + durations.Exact(limit.Round(time.Millisecond))}, nil
	}
	if cut, ok := errors.AsType[*bodyError](err); ok {
		o := failed("%s", cut)
		return &o, nil
	}
	o := failed("%s", remote.FailureClass(err))
	return &o, nil
}

// bodyError reports a response with a success status whose body did not end.
type bodyError struct {
	status string
	read   int64 // bytes of the body
	err    error
}

func (e *bodyError) Error() string {
	why := "the response cannot be read"
	if errors.Is(e.err, io.ErrUnexpectedEOF) || errors.Is(e.err, syscall.ECONNRESET) {
		why = "the server closed the connection"
	}
	return fmt.Sprintf("HTTP %s, but the response was truncated after %d bytes: %s", e.status, e.read, why)
}

func (e *bodyError) Unwrap() error { return e.err }

func (e *bodyError) stalledFor(limit time.Duration) string {
	return fmt.Sprintf("HTTP %s, but the response did not end within %s: %d bytes were read", e.status,
		durations.Exact(limit.Round(time.Millisecond)), e.read)
}

// ask sends the request and evaluates the response.
func ask(
	ctx context.Context, client *http.Client, w *work, target *progressorv1.HttpTarget, headers map[string]string,
	sign func(http.Header),
) (*outcome, error) {
	request, err := http.NewRequestWithContext(ctx, cmp.Or(target.GetMethod(), http.MethodPost), target.GetUrl(),
		bytes.NewReader(target.GetBody()))
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
		if strings.EqualFold(name, "Host") {
			request.Host = value
		}
	}
	tracing.Inject(ctx, request.Header)
	request.Header.Set(headerCronID, headerText(w.CronID))
	request.Header.Set(headerFireTime, w.Fire.UTC().Format(time.RFC3339Nano))
	request.Header.Set(headerAttempt, strconv.Itoa(int(w.Attempt)))
	sign(request.Header)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	read, err := io.CopyN(io.Discard, response.Body, maxAnswerBytes)
	good := response.StatusCode >= 200 && response.StatusCode <= 299
	if codes := target.GetSuccessCodes(); len(codes) > 0 {
		good = slices.Contains(codes, int32(response.StatusCode))
	}
	switch {
	case good && err != nil && !errors.Is(err, io.EOF):
		return nil, &bodyError{status: statusText(response.StatusCode), read: read, err: err}
	case good:
		return &outcome{cron.Success, "HTTP " + strconv.Itoa(response.StatusCode)}, nil
	}
	o := failed("HTTP %s", statusText(response.StatusCode))
	return &o, nil
}

// statusText returns a status code with its standard text, not with the text that the server has
// sent.
func statusText(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}

// headerText returns an ID as a header value. An ID that has characters other than printable ASCII
// is percent-encoded.
func headerText(id string) string {
	if strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return url.PathEscape(id)
	}
	return id
}

// messageID returns the webhook-id of a request. The signature covers it, so the receiver can trust
// the cron, the fire time and the attempt in it.
func messageID(namespace string, w *work) string {
	return fmt.Sprintf("cron_%s_%s_%d_%d", signature.Escape(namespace), signature.Escape(w.CronID),
		w.Fire.UnixMicro(), w.Attempt)
}

// watchCancel closes cancelled and calls cancel when the run is asked to end. It returns when ctx
// ends.
func (c *Crons) watchCancel(ctx context.Context, run process.Key, cancelled chan<- struct{}, cancel func()) {
	look := time.NewTicker(cancelPoll)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if left, err := c.store.CancelGrace(ctx, run); err == nil && left > 0 {
			close(cancelled)
			cancel()
			return
		}
	}
}
