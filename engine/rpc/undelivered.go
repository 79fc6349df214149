package rpc

import (
	"context"
	"net/http"
)

type undeliveredKey struct{}

// undelivered has what to do if the response to a request does not reach the client.
type undelivered struct{ do func() }

// ifUndelivered sets what is done if the response to a request does not reach the client. do gets a
// context that is not cancelled.
func ifUndelivered(ctx context.Context, do func(context.Context)) {
	if u, ok := ctx.Value(undeliveredKey{}).(*undelivered); ok {
		u.do = func() { do(context.WithoutCancel(ctx)) }
	}
}

// watchDelivery calls the function of ifUndelivered if the client has disconnected before next has
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
