package jobs_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func times(lease, interval time.Duration) *progressorv1.JobOptions {
	o := &progressorv1.JobOptions{Timeout: durationpb.New(time.Hour)}
	if lease != 0 {
		o.LeaseDuration = durationpb.New(lease)
	}
	if interval != 0 {
		o.HeartbeatInterval = durationpb.New(interval)
	}
	return o
}

// update changes options of a job of namespace "pull".
func (n *node) update(t testing.TB, id string, o *progressorv1.JobOptions, paths ...string) error {
	t.Helper()
	_, err := n.Update(t.Context(), &progressorv1.UpdateJobRequest{
		Namespace: "pull", JobId: id, Options: o, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
	})
	return err
}

// A heartbeat gives a running job its new lease and its new interval together, so the interval
// always fits the lease.
func TestIntervalChangesWithTheLease(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for _, id := range []string{"plain", "group"} {
		o := times(3*time.Minute, 0)
		if id == "group" {
			o.Workers = &progressorv1.WorkerGroup{Count: 1}
		}
		n.enqueue(t, "pull", id, o)
		l := n.leaseOne(t, "w")
		must(t, n.update(t, id, times(time.Hour, 20*time.Minute), "lease_duration", "heartbeat_interval"))
		d := n.beat(t, "w", l)
		lasts := d.GetExpiresTime().AsTime().Sub(l.GetLeasedTime().AsTime())
		if lasts < time.Hour || d.GetHeartbeatInterval().AsDuration() != 20*time.Minute {
			t.Errorf("%s: the lease lasts for %s, the interval is %s", id, lasts, d.GetHeartbeatInterval().AsDuration())
		}
		must(t, n.succeed(l, nil))
	}
}

// An interval that does not fit the lease of the namespace is shortened to half of the lease.
func TestIntervalIsAtMostHalfOfTheLease(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) {
		ns.GetProcessor().GetPull().LeaseDuration = durationpb.New(time.Minute)
	}))
	n.enqueue(t, "pull", "j", times(0, 20*time.Minute))
	l := n.leaseOne(t, "w")
	if got := l.GetHeartbeatInterval().AsDuration(); got != 30*time.Second {
		t.Errorf("the interval of the lease is %s", got)
	}
	if got := n.beat(t, "w", l).GetHeartbeatInterval().AsDuration(); got != 30*time.Second {
		t.Errorf("the interval after a heartbeat is %s", got)
	}
}

// A lease and an interval that do not fit are rejected, and so are durations of zero.
func TestIntervalIsChecked(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	const lease, interval = "options.lease_duration", "options.heartbeat_interval"
	for _, c := range []struct {
		o     *progressorv1.JobOptions
		field string
	}{
		{times(3*time.Second, 20*time.Second), interval},
		{times(3*time.Second, 2*time.Second), interval},
		{times(0, 31*time.Minute), interval},
		{times(2*time.Hour, 31*time.Minute), interval},
		{&progressorv1.JobOptions{LeaseDuration: durationpb.New(0)}, lease},
		{&progressorv1.JobOptions{HeartbeatInterval: durationpb.New(0)}, interval},
		{times(4*time.Second, 2*time.Second), ""},
		{times(0, 30*time.Minute), ""},
	} {
		e := &progressorv1.EnqueueRequest{Namespace: "pull", Name: "work", Options: c.o}
		_, one := n.Enqueue(t.Context(), e)
		_, batch := n.EnqueueBatch(t.Context(),
			&progressorv1.EnqueueBatchRequest{Jobs: []*progressorv1.EnqueueRequest{e}})
		wantField(t, one, c.field)
		if c.field != "" {
			c.field = "jobs[0]." + c.field
		}
		wantField(t, batch, c.field)
	}
	n.enqueue(t, "pull", "j", times(time.Minute, 20*time.Second))
	wantField(t, n.update(t, "j", times(30*time.Second, 0), "lease_duration"), interval)
	wantField(t, n.update(t, "j", times(0, 40*time.Second), "heartbeat_interval"), interval)
	wantField(t, n.update(t, "j", times(30*time.Second, 0), "lease_duration", "heartbeat_interval"), "")
}

func wantField(t testing.TB, err error, field string) {
	t.Helper()
	invalid, _ := errors.AsType[*process.InvalidError](err)
	if (err != nil) != (field != "") || invalid != nil && invalid.Field != field {
		t.Errorf("%v, want an error of %q", err, field)
	}
}
