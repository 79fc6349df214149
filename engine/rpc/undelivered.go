package rpc

import (
	"context"
	"net/http"
)

type undeliveredKey struct{}

// undelivered holds the function to call if the response to a request does not reach the client.
type undelivered struct{ do func() }

// ifUndelivered sets the function to call if the response to a request does not reach the client.
// The context of do is never cancelled.
func ifUndelivered(ctx context.Context, do func(context.Context)) {
	if u, ok := ctx.Value(undeliveredKey{}).(*undelivered); ok {
		u.do = func() { do(context.WithoutCancel(ctx)) }
	}
}

// watchDelivery calls the function set by ifUndelivered if the client disconnected before next
// returned. Such a client has not read the whole response: the responses of methods have no
// Content-Length, so net/http sends their end after the handler has returned.
func watchDelivery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &undelivered{}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), undeliveredKey{}, u)))
		if u.do != nil && r.Context().Err() != nil {
			u.do()
		}
	})
}
