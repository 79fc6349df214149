// Package client is the Go client of a Progressor engine.
//
//	c := client.New("http://127.0.0.1:8080")
//	answer, err := c.Call(ctx, &progressorv1.CallRequest{
//		Namespace: "demo", ProcessId: "order-1", Args: []byte(`{"do":"pay"}`),
//	})
//	if client.Reason(err) == progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND { … }
//
// Start, Call and Repair give every request an idempotency key where the caller gave none, so that they can repeat a
// request whose answer was lost without doing it twice. The generated clients stand beside them for the methods that
// need no such care.
package client
