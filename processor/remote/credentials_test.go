package remote

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Headers are opened for each request. If that fails, nothing is sent, and the processor counts as
// unreachable, so that the task is retried. The error does not contain a value.
func TestHeadersOfEachRequest(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		var sent atomic.Value
		echo := processor.Handler(processor.Echo(), processor.WithMiddleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sent.Store(r.Header.Get("Authorization"))
				next.ServeHTTP(w, r)
			})
		}))
		opened, failure := map[string]string{}, error(nil)
		way.Url, way.Headers = serve(t, echo).URL, map[string]string{"authorization": "sealed"}
		p, err := Dial("shop", way, 10, func(context.Context) (Credentials, error) {
			return Credentials{Headers: opened}, failure
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.(*Processor).Close() })
		for _, value := range []string{"first", "second"} {
			opened["authorization"] = value
			if _, err := p.Process(t.Context(), request()); err != nil || sent.Load() != value {
				t.Errorf("the processor got %v, want %s, %v", sent.Load(), value, err)
			}
		}
		for _, c := range []struct {
			value string
			err   error
			want  string
		}{{"hunter2", errors.New("no such secret"), "no such secret"}, {"hunter2\n", nil, "control characters"}} {
			opened["authorization"], failure = c.value, c.err
			_, err := p.Process(t.Context(), request())
			_, ok := errors.AsType[*processor.UnreachableError](err)
			if !ok || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") ||
				sent.Load() != "second" {
				t.Errorf("%q: %v; sent %v", c.value, err, sent.Load())
			}
		}
	})
}
