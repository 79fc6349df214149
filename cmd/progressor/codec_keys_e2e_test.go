package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Keys are replaced while a process runs. A client or a processor that lacks a key, or has a
// different key with the same ID, gets an error with the reason, and nothing changes.
func TestKeysOfPayloadsAreRotated(t *testing.T) {
	p, c := newKeys(t, "k1"), newKeys(t, "k1")
	e := newCoded(t, p, c)
	_, err := e.c.Start(t.Context(), &progressorv1.StartRequest{
		Namespace: "orders", ProcessId: "order-1", Args: []byte(inClear + "args")})
	e.ok(err)
	call := func(want string) {
		t.Helper()
		response, err := e.call(e.c, "tea", "")
		if want == "" {
			e.ok(err)
			e.want("the response", response, "hunter2-did tea")
			return
		}
		if detail := client.Detail(err).GetRejection(); detail.GetReason() != processor.ReasonUndecodable ||
			!strings.Contains(detail.GetMessage(), want) {
			t.Errorf("got %v, want a rejection: %s", err, want)
		}
	}
	c.set(t, "k2", "k1") // too early: the processor does not have the key
	call(`decode the request: args: the payload was encoded with an unknown key: "k2"`)
	for _, step := range [][2][]string{ // the keys of the processor and of the client
		{{"k1", "k2"}, {"k1"}}, {{"k1", "k2"}, {"k1", "k2"}}, {{"k2", "k1"}, {"k1", "k2"}},
		{{"k2", "k1"}, {"k2", "k1"}},
	} {
		p.set(t, step[0]...)
		c.set(t, step[1]...)
		call("")
	}
	read := func() error {
		_, err := e.c.Process.GetProcess(t.Context(), &progressorv1.GetProcessRequest{
			Namespace: "orders", ProcessId: "order-1", Range: &progressorv1.HistoryRange{}})
		return err
	}
	e.ok(read())
	c.set(t, "k2")
	if err := read(); !errors.Is(err, codec.ErrUnknownKey) || connect.CodeOf(err) != connect.CodeDataLoss ||
		!strings.Contains(err.Error(), `process.history[0].payload: the payload was encoded with an unknown key`) {
		t.Errorf("a client without the first key: %v", err)
	}
	c.set(t, "k2", "k1=k3")
	if err := read(); !errors.Is(err, codec.ErrInvalid) {
		t.Errorf("a client with another first key: %v", err)
	}
	c.set(t, "k2", "k1")
	p.set(t, "k2=k3", "k1")
	call(`args: the encoded payload is not valid for its key and purpose: key "k2", purpose message`)
	p.set(t, "k2", "k1=k3")
	call(`decode the request: process.history[0].payload: the encoded payload is not valid`)
	p.set(t, "k2", "k1")
	call("")
	plain := client.New(e.url)
	if _, err := e.call(plain, "tea", ""); !strings.Contains(fmt.Sprint(err), "args: the payload is not encoded") {
		t.Errorf("a client without a codec: %v", err)
	}
}

// A job fails if its worker does not have the key of its payload. After a retry, a worker that has
// the key runs the job.
func TestWorkerWithoutTheKey(t *testing.T) {
	e := newCoded(t, newKeys(t, "k1"), newKeys(t, "k1"))
	stop := e.work(newKeys(t, "k2"), func(context.Context, note) (note, error) { panic("it must not be called") })
	defer func() { stop() }()
	resp, err := client.Enqueue(t.Context(), e.c, "work", "send", note{inClear + "tea"},
		client.WithJobOptions(&progressorv1.JobOptions{MaxRetry: 1, KeepResult: true,
			Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)}}}))
	e.ok(err)
	await := func(state progressorv1.JobState) *progressorv1.Job {
		t.Helper()
		job, err := e.c.AwaitJob(t.Context(),
			&progressorv1.GetJobRequest{Namespace: "work", JobId: resp.GetJob().GetJobId()},
			func(*progressorv1.Job) error { return nil })
		e.ok(err)
		if job.GetState() != state {
			t.Fatalf("the job is %v, want %v", job, state)
		}
		return job
	}
	failures := await(progressorv1.JobState_JOB_STATE_FAILED).GetFailures()
	if len(failures) != 2 || failures[0].GetReason() != processor.ReasonUndecodable ||
		!strings.Contains(failures[0].GetMessage(), `unknown key: "k1"`) {
		t.Errorf("the failures are %v", failures)
	}
	stop()
	stop = e.work(newKeys(t, "k1"), func(_ context.Context, m note) (note, error) { return m, nil })
	_, err = e.c.Job.RetryJob(t.Context(),
		&progressorv1.RetryJobRequest{Namespace: "work", JobId: resp.GetJob().GetJobId()})
	e.ok(err)
	await(progressorv1.JobState_JOB_STATE_SUCCEEDED)
}
