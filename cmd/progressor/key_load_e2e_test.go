package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Keys are rotated and revoked under load. The engine accepts the new key at once, so no request
// fails, although no client retries.
func TestKeysAreRotatedUnderLoad(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "required", "--db.dsn", dsn)
	program := clitest.Program{Commands: newCommands}
	root := d.Client
	_, rootToken := newKey(t, dsn, "root", "root")
	root.Env = map[string]string{"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_TOKEN": rootToken}
	root.OK(t, "namespace", "put", "load", "--builtin", "echo")
	id, first := newKey(t, dsn, "billing", "client", "load")
	var token atomic.Pointer[string]
	token.Store(&first)
	c := client.New(d.URL, client.WithRetry(client.Retry{MaxAttempts: 1}),
		client.WithTokenSource(func(context.Context) (string, error) { return *token.Load(), nil }))
	const callers = 4
	var ended [callers]chan struct{} // receives a value when a call ends
	var stop atomic.Bool
	var wg sync.WaitGroup
	for n := range callers {
		ended[n] = make(chan struct{})
		wg.Go(func() {
			defer close(ended[n])
			process := fmt.Sprintf("p%d", n)
			_, err := c.Start(t.Context(), &progressorv1.StartRequest{Namespace: "load", ProcessId: process})
			for err == nil && !stop.Load() {
				_, err = c.Call(t.Context(), &progressorv1.CallRequest{Namespace: "load", ProcessId: process})
				select {
				case ended[n] <- struct{}{}:
				default:
				}
			}
			if err != nil {
				t.Errorf("caller %d: %v", n, err)
			}
		})
	}
	// settle waits until no request uses a token that was replaced before the call.
	settle := func() {
		for n := range ended {
			<-ended[n]
			<-ended[n]
		}
	}
	settle()
	for range 5 {
		next := strings.TrimSpace(program.OK(t, "key", "rotate", id, "--db.dsn", dsn))
		token.Store(&next)
		settle()
		program.OK(t, "key", "revoke", id, "--db.dsn", dsn)
		id = strings.Split(next, "_")[1]
	}
	settle()
	stop.Store(true)
	wg.Wait()
}
