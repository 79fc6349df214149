// Package client is the Go client of a Progressor engine: requests with retries (Client) and a
// worker that runs the tasks of namespaces whose processor is `pull` (Worker).
//
//	c := client.New("http://127.0.0.1:8080")
//	resp, err := c.Call(ctx, &progressorv1.CallRequest{
//		Namespace: "demo", ProcessId: "order-1", Args: []byte(`{"do":"pay"}`),
//	})
//	if client.Reason(err) == progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND { … }
//
// Start, Call and Repair give every request an idempotency key unless the caller sets one. A retry
// after a lost response is therefore safe. The fields of Client are the generated clients for all
// other methods. WithCodec encrypts payloads.
//
// Package client imports process, processor and the generated messages, but no package of the
// engine or of storage. Start with client.go for requests, and with worker.go and worker_run.go for
// workers.
package client
