package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/wire"
)

// The defaults and limits of options.
const (
	defaultTimeout      = 30 * time.Second
	defaultResultTTL    = time.Hour
	defaultMaxTakeovers = 3
	maxTimeout          = 365 * 24 * time.Hour
)

// stored contains the options of a job in their stored form.
type stored struct {
	options, tags, metadata []byte
	timeout                 time.Duration
	grouped                 bool // several workers run the job
}

// storedOptions validates options and converts them to their stored form. Options with their own
// column are not in the JSON.
func storedOptions(path string, o *progressorv1.JobOptions) (stored, error) {
	s := stored{timeout: cmp.Or(o.GetTimeout().AsDuration(), defaultTimeout)}
	if s.timeout > maxTimeout {
		return s, &process.InvalidError{Field: path + "timeout", Message: "must be at most 365 days"}
	}
	err := processor.CheckWorkerGroup(path+"workers", o.GetWorkers())
	if err != nil {
		return s, err
	}
	s.grouped = o.GetWorkers() != nil
	if s.metadata, err = wire.JSON(o.GetMetadata()); err != nil {
		return s, &process.InvalidError{Field: path + "metadata", Message: err.Error()}
	}
	if len(s.metadata) > process.MaxMetadataBytes {
		return s, &process.InvalidError{
			Field: path + "metadata", TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", process.MaxMetadataBytes,
				len(s.metadata)),
		}
	}
	if len(o.GetTags()) > 0 {
		if s.tags, err = json.Marshal(o.GetTags()); err != nil {
			return s, &process.InvalidError{Field: path + "tags", Message: err.Error()}
		}
	}
	if o == nil {
		return s, nil
	}
	rest := proto.Clone(o).(*progressorv1.JobOptions)
	rest.Priority, rest.Timeout, rest.Tags, rest.Metadata, rest.RunTime = 0, nil, nil, nil, nil
	if rest.GetLeaseDuration().AsDuration() <= 0 {
		rest.LeaseDuration = nil
	}
	if rest.GetHeartbeatInterval().AsDuration() <= 0 {
		rest.HeartbeatInterval = nil
	}
	if rest.GetStartDeadline().AsDuration() <= 0 {
		rest.StartDeadline = nil
	}
	if proto.Size(rest) == 0 {
		return s, nil
	}
	s.options, err = protojson.Marshal(rest)
	return s, err
}

// uniqueOf returns the unique key of a job with these options.
func uniqueOf(o *progressorv1.JobOptions, name string, args []byte) jobs.Unique {
	u := o.GetUnique()
	if u == nil {
		return jobs.Unique{}
	}
	key := u.GetKey()
	if key == "" {
		key = fmt.Sprintf("%x", process.Fingerprint("unique", []byte(name), args))
	}
	return jobs.Unique{
		Key: key, TTL: u.GetTtl().AsDuration(), Waiting: u.GetScope() == progressorv1.UniqueScope_UNIQUE_SCOPE_WAITING,
		Replace: u.GetReplace(),
	}
}

// valueJSON returns a value in its stored form. limit is in bytes.
func valueJSON(field string, v *structpb.Value, limit int) ([]byte, error) {
	text, err := wire.ValueJSON(v)
	if err != nil {
		return nil, &process.InvalidError{Field: field, Message: err.Error()}
	}
	if len(text) > limit {
		return nil, &process.InvalidError{
			Field: field, TooLarge: true,
			Message: fmt.Sprintf("must have at most %d bytes of JSON (got %d)", limit, len(text)),
		}
	}
	return text, nil
}

// updatable lists the fields of JobOptions that UpdateJob can change.
var updatable = []protoreflect.Name{
	"priority", "max_retry", "backoff", "timeout", "keep_result", "result_ttl", "run_time", "tags", "workers",
	"metadata", "cancel_grace",
	"lease_duration", "heartbeat_interval", "start_deadline",
}

// Update changes options of a job that has not ended. by is the caller, if known.
func (q *Jobs) Update(
	ctx context.Context, r *progressorv1.UpdateJobRequest, by ...process.Actor,
) (*progressorv1.Job, error) {
	key := process.Key{Namespace: r.GetNamespace(), ProcessID: r.GetJobId()}
	if err := checkUpdate(r); err != nil {
		return nil, err
	}
	err := jobs.Change(ctx, q.store, key, func(row *jobs.Row) (*jobs.Update, error) {
		return updated(row, r, nameOf(by))
	})
	if errors.Is(err, process.ErrJobNotFound) {
		return nil, q.notFound(ctx, key)
	}
	if err != nil {
		return nil, q.byState(ctx, key, err)
	}
	return q.retried(ctx, key)
}

// updated returns the fields that an update stores for a job.
func updated(row *jobs.Row, r *progressorv1.UpdateJobRequest, actor string) (*jobs.Update, error) {
	job, err := wire.Job(row)
	if err != nil {
		return nil, err
	}
	options, given := job.GetOptions(), r.GetOptions().ProtoReflect()
	named := map[protoreflect.Name]bool{}
	for _, path := range r.GetUpdateMask().GetPaths() {
		name := protoreflect.Name(path)
		named[name] = true
		if name == argsPath {
			continue
		}
		fd := options.ProtoReflect().Descriptor().Fields().ByName(name)
		if given.Has(fd) {
			options.ProtoReflect().Set(fd, given.Get(fd))
		} else {
			options.ProtoReflect().Clear(fd)
		}
	}
	if err := checkTimes("", options); err != nil {
		return nil, err
	}
	s, err := storedOptions("options.", options)
	if err != nil {
		return nil, err
	}
	if was := bytes.Contains(row.Options, []byte(`"workers"`)) && row.Runs != nil || row.Grouped; was != s.grouped {
		return nil, &process.InvalidError{
			Field:   "options.workers",
			Message: "cannot be added to a job for one worker, or removed from a job for several workers",
		}
	}
	u := &jobs.Update{
		Actor: actor, Fields: slices.Compact(slices.Sorted(slices.Values(r.GetUpdateMask().GetPaths()))),
		Timeout: s.timeout, Tags: s.tags, Options: s.options,
	}
	if named["metadata"] {
		u.Metadata = &s.metadata
	}
	if named["priority"] {
		u.Priority = &options.Priority
	}
	if lease := options.GetLeaseDuration().AsDuration(); named["lease_duration"] && lease > 0 {
		u.Lease = min(lease, process.MaxLease)
	}
	if named[argsPath] {
		if u.Args, err = updatedArgs(row, options, r); err != nil {
			return nil, err
		}
	}
	if named["run_time"] {
		at := options.GetRunTime().AsTime()
		u.RunTime = &at
	}
	return u, nil
}
