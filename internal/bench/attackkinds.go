package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/engine/auth"
)

// attackKind is a kind of attack of a tenant, or of a client without credentials, on an engine.
type attackKind struct {
	note func(c *Command) string
	// takes is how long the attack takes to change its metric. It is 0 if the metric changes within
	// a window.
	takes  time.Duration
	metric series
	alert  string // the alert that the metric can trigger
	// prepare does slow preparations before the attack. It may be nil.
	prepare func(a *attacked, ctx context.Context) error
	// run attacks until ctx ends.
	run func(a *attacked, ctx context.Context) error
}

// attackNames lists the attacks in the order of the report.
var attackNames = []string{
	"expanding-requests", "expanding-responses", "long-numbers", "patterns", "foreign-hosts", "tokens", "awaits",
	"slow-bodies", "connections", "watchers", "namespaces",
}

// The full sizes of the attacks. --attack-size is a percentage of them. Unless a comment says
// otherwise, a size is a number of clients that each send one request after the other.
const (
	expandingClients = 16
	responseClients  = 64
	numberClients    = 8
	templateClients  = 4
	templatePatterns = 20_000
	strangers        = 32       // each with 100 requests per second
	awaitingRequests = 20_000   // at the same time
	openConnections  = 12_000   // at the same time
	silentWatchers   = 300      // at the same time
	watchedEvents    = 4000     // of 1 KiB
	expandedBytes    = 16 << 20 // maximum size of a request or a response
)

// alertOfLimits and the constants below it are names of alerts in deploy/prometheus/alerts.yaml.
const (
	alertOfLimits  = "ProgressorRefuses"
	alertOfInvalid = "ProgressorRequestsInvalid"
	alertOfStalls  = "ProgressorClientsStall"
)

const rejectedMetric, refusedMetric = "progressor_http_rejected_total", "progressor_requests_refused_total"

var undecodable = series{rejectedMetric, "reason", "undecodable"}

var attackKinds = map[string]attackKind{
	"expanding-requests": {
		note: func(c *Command) string {
			return fmt.Sprintf("%d clients send 16 KB that expand to 16 MiB", c.sized(expandingClients))
		},
		metric: undecodable, alert: alertOfInvalid, prepare: (*attacked).expandBodies, run: (*attacked).sendBodies,
	},
	"expanding-responses": {
		note: func(c *Command) string {
			return fmt.Sprintf("%d clients call a processor that answers with 16 MiB", c.sized(responseClients))
		},
		metric: series{"progressor_task_completion_duration_ms", "completion_type", "error"},
		alert:  "ProgressorTasksFail", prepare: (*attacked).expandResponse, run: (*attacked).expandResponses,
	},
	"long-numbers": {
		note: func(c *Command) string {
			return fmt.Sprintf("%d clients send a number of 16 MB", c.sized(numberClients))
		},
		metric: undecodable, alert: alertOfInvalid, prepare: (*attacked).longNumber, run: (*attacked).sendBodies,
	},
	"patterns": {
		note: func(c *Command) string {
			return fmt.Sprintf("%d clients store a template with %d patterns", c.sized(templateClients),
				templatePatterns)
		},
		metric: series{"progressor_rpc_duration_seconds", "code", "invalid_argument"}, alert: alertOfInvalid,
		prepare: (*attacked).manyPatterns, run: (*attacked).sendBodies,
	},
	"foreign-hosts": {
		note:   func(c *Command) string { return fmt.Sprintf("%d pages of other sites", c.sized(strangers)) },
		metric: series{rejectedMetric, "reason", "host"}, alert: "ProgressorHostsRejected",
		run: (*attacked).rebind,
	},
	"tokens": {
		note:   func(c *Command) string { return fmt.Sprintf("%d clients guess tokens", c.sized(strangers)) },
		metric: series{"progressor_auth_total", "outcome", "limited"}, alert: "ProgressorAuthFails",
		run: (*attacked).guessTokens,
	},
	"awaits": {
		note: func(c *Command) string {
			return fmt.Sprintf("one client with %d AwaitTask requests", c.sized(awaitingRequests))
		},
		metric: series{refusedMetric, "bound", "client_awaits"}, alert: alertOfLimits,
		run: (*attacked).await,
	},
	"slow-bodies": {
		note: func(c *Command) string {
			return fmt.Sprintf("%d bodies with a byte per 5 s", c.sized(openConnections))
		},
		takes: 40 * time.Second, metric: series{rejectedMetric, "reason", "slow_body"}, alert: alertOfStalls,
		run: (*attacked).sendSlowly,
	},
	"connections": {
		note:   func(c *Command) string { return fmt.Sprintf("%d idle connections", c.sized(openConnections)) },
		metric: series{"progressor_connections_refused_total", "bound", "client_connections"},
		alert:  "ProgressorConnectionsRefused",
		run:    (*attacked).keepConnections,
	},
	"watchers": {
		note: func(c *Command) string {
			return fmt.Sprintf("%d watchers that do not read", c.sized(silentWatchers))
		},
		metric: series{refusedMetric, "bound", "client_streams"}, alert: alertOfLimits,
		prepare: (*attacked).importEvents, run: (*attacked).watchSilently,
	},
	"namespaces": {
		note: func(c *Command) string {
			return fmt.Sprintf("%d clients create namespaces", c.sized(namespaceClients))
		},
		metric: series{refusedMetric, "bound", "namespaces"}, alert: alertOfLimits,
		prepare: (*attacked).fillNamespaces, run: (*attacked).createNamespaces,
	},
}

// sized returns the size of an attack.
func (c *Command) sized(n int) int { return max(1, n*c.AttackSize/100) }

// repeat makes clients repeat an operation until ctx ends. pause is the time between two calls.
// After an error, such as a closed connection, it is at least a millisecond.
func (a *attacked) repeat(
	ctx context.Context, clients int, pause time.Duration, do func(ctx context.Context, client int) error,
) error {
	var running sync.WaitGroup
	failed := make(chan error, clients)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for n := range clients {
		running.Go(func() {
			for ctx.Err() == nil {
				err := do(ctx, n)
				if errors.Is(err, errAccepted) {
					failed <- err
					cancel()
					return
				}
				rest := pause
				if err != nil {
					rest = max(pause, time.Millisecond)
				}
				_ = waitFor(ctx, rest) // the loop checks ctx
			}
		})
	}
	running.Wait()
	close(failed)
	return <-failed
}

// waitFor is like wait, but creates no timer if there is nothing to wait for.
func waitFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	return wait(ctx, d)
}

// errAccepted is the error of an attack whose request the engine accepts.
var errAccepted = errors.New("the engine accepts the request of the attack")

const startPath = "/progressor.v1.ProcessService/Start"

// body is a request of an attack.
type body struct {
	path, contentType, encoding string
	data                        []byte
}

// post sends a request of the attacker, and returns the status and the size of the answer.
func (a *attacked) post(ctx context.Context, b body, change func(*http.Request)) (int, int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url(a.from)+b.path, bytes.NewReader(b.data))
	if err != nil {
		return 0, 0, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", b.contentType)
	if b.encoding != "" {
		request.Header.Set("Content-Encoding", b.encoding)
	}
	if change != nil {
		change(request)
	}
	answer, err := a.hostile.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	size, err := io.Copy(io.Discard, answer.Body)
	if err == nil {
		a.requests.Add(1)
	}
	return answer.StatusCode, size, err
}

// rejected sends a request of the attacker that must be rejected, with a short answer.
func (a *attacked) rejected(ctx context.Context, b body, change func(*http.Request)) error {
	status, size, err := a.post(ctx, b, change)
	if err == nil && (status == http.StatusOK || size > maxRejection) {
		return fmt.Errorf("%w: HTTP %d with %d bytes", errAccepted, status, size)
	}
	return err
}

// maxRejection limits the answer to a request that is rejected.
const maxRejection = 4 << 10

// sendBodies sends the prepared bodies.
func (a *attacked) sendBodies(ctx context.Context) error {
	return a.repeat(ctx, a.command.sized(a.senders), 0, func(ctx context.Context, n int) error {
		return a.rejected(ctx, a.bodies[n%len(a.bodies)], nil)
	})
}

// strangerPause is the time between two requests of a stranger.
const strangerPause = 10 * time.Millisecond

// rebind sends the requests of web pages whose host name points to the engine.
func (a *attacked) rebind(ctx context.Context) error {
	b := plain(startPath, `{"namespace":"victim","processId":"p"}`)
	return a.repeat(ctx, a.command.sized(strangers), strangerPause, func(ctx context.Context, _ int) error {
		return a.rejected(ctx, b, func(r *http.Request) {
			r.Host = "evil.example"
			r.Header.Set("Origin", "http://evil.example")
		})
	})
}

func (a *attacked) guessTokens(ctx context.Context) error {
	b := plain(startPath, `{"namespace":"victim","processId":"p"}`)
	return a.repeat(ctx, a.command.sized(strangers), strangerPause, func(ctx context.Context, _ int) error {
		return a.rejected(ctx, b, func(r *http.Request) {
			_, token := auth.NewToken()
			r.Header.Set("Authorization", "Bearer "+token)
		})
	})
}
