package processor_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

// The error of an invalid command that enqueues a job names the invalid field.
func TestCheckEnqueue(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]*progressorv1.JobOptions{
		"":                 {MaxRetry: 1},
		"tags[0]":          {Tags: []string{""}},
		"unique":           {Unique: &progressorv1.Unique{}},
		"timeout":          {Timeout: &durationpb.Duration{Seconds: -1}},
		"max_retry":        {MaxRetry: -1},
		"backoff.factor":   {Backoff: &progressorv1.Backoff{Factor: proto.Float64(math.NaN())}},
		"backoff.jitter":   {Backoff: &progressorv1.Backoff{Jitter: proto.Float64(2)}},
		"backoff.steps[1]": {Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{{}, {Seconds: 4e9}}}},
		"workers.count":    {Workers: &progressorv1.WorkerGroup{Count: 2000}},
		"~":                nil,
		// The method Enqueue also rejects these options.
		"timeout ":              {Timeout: &durationpb.Duration{}},
		"lease_duration":        {LeaseDuration: &durationpb.Duration{}},
		"heartbeat_interval":    {LeaseDuration: seconds(10), HeartbeatInterval: seconds(6)},
		"start_deadline":        {StartDeadline: &durationpb.Duration{}},
		"start_deadline ":       {StartDeadline: seconds(1), Workers: &progressorv1.WorkerGroup{}},
		"workers.count ":        {Workers: &progressorv1.WorkerGroup{Count: 2, WorkerIds: []string{"a"}}},
		"workers.worker_ids[1]": {Workers: &progressorv1.WorkerGroup{WorkerIds: []string{"a", "a"}}},
	} {
		id, want := "j", "result.commands[0].options."+strings.TrimSpace(field)
		if field == "~" {
			id, want = "~job/x", "result.commands[0].job_id"
		}
		response, err := processor.Result().Enqueue(
			&progressorv1.EnqueueCommand{JobId: id, Name: "work", Options: o}).Done()
		if err != nil {
			t.Fatal(err)
		}
		err = processor.Check(taskTimeout, response)
		invalid, _ := errors.AsType[*process.InvalidError](err)
		if field == "" && err != nil || field != "" && (invalid == nil || invalid.Field != want) {
			t.Errorf("%q: %v", field, err)
		}
	}
}
