package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// workerService serves WorkerService.
type workerService struct {
	workers *pull.Server
	answers *validation // validates each answer of a batch
	log     *slog.Logger
}

func newWorkerService(workers *pull.Server, log *slog.Logger) (*workerService, error) {
	answers, err := validationOf((*progressorv1.LeaseAnswer)(nil).ProtoReflect().Descriptor())
	return &workerService{workers: workers, answers: answers, log: cmp.Or(log, slog.Default())}, err
}

// newWorkerHandler returns the HTTP handler of a service, and its path.
func newWorkerHandler(
	s progressorv1connect.WorkerServiceHandler, options connect.HandlerOption,
) (path string, h http.Handler) {
	path, h = progressorv1connect.NewWorkerServiceHandler(s, options,
		connect.WithCompressMinBytes(workerCompressMinBytes))
	return path, watchDelivery(h)
}

// Poll leases tasks to a worker.
func (s *workerService) Poll(ctx context.Context, r *progressorv1.PollRequest) (*progressorv1.PollResponse, error) {
	ctx = withCaller(ctx)
	leases, err := s.workers.Poll(ctx, pollParams(r))
	if err != nil {
		return nil, err
	}
	s.releaseUndelivered(ctx, leases)
	return &progressorv1.PollResponse{Leases: leases, Worker: s.workers.WorkerDirective(ctx, r.GetWorkerId())}, nil
}

// releaseUndelivered releases leases immediately if the response with them does not reach the
// worker.
func (s *workerService) releaseUndelivered(ctx context.Context, leases []*progressorv1.Lease) {
	if len(leases) == 0 {
		return
	}
	ifUndelivered(ctx, func(ctx context.Context) {
		tokens := make([]string, len(leases))
		for n, l := range leases {
			tokens[n] = l.GetLeaseToken()
		}
		if err := s.workers.ReleaseLeases(ctx, tokens, 0); err != nil {
			s.log.WarnContext(ctx, "releasing undelivered tasks failed: their leases will expire",
				"leases", len(tokens), "error", err)
		}
	})
}

func pollParams(r *progressorv1.PollRequest) pull.PollParams {
	return pull.PollParams{
		Namespaces: r.GetNamespaces(), WorkerID: r.GetWorkerId(), JobNames: r.GetJobNames(), JobsOnly: r.GetJobsOnly(),
		ContinuesParked: r.GetContinuesParked(),
		Max:             int(max(r.GetMaxLeases(), 1)),
		Wait:            r.GetWait().AsDuration(), Lease: r.GetLeaseDuration().AsDuration(),
	}
}

// maxUserAgent is the maximum stored size of a worker's User-Agent, in bytes.
const maxUserAgent = 256

// withCaller returns a context with the client of a request and its limits as a worker.
func withCaller(ctx context.Context) context.Context {
	c := &pull.Caller{}
	if call, ok := connect.CallInfoForHandlerContext(ctx); ok {
		if peer, err := netip.ParseAddrPort(call.Peer().Addr); err == nil {
			c.Address = peer.Addr().Unmap().String()
		}
		agent := call.RequestHeader().Get("User-Agent")
		c.UserAgent = strings.ToValidUTF8(agent[:min(len(agent), maxUserAgent)], "")
	}
	if p := principalOf(ctx); p != nil {
		c.Name, c.Owner, c.Jobs = p.Name, p.Owner(), p.Jobs
	}
	return pull.WithCaller(ctx, c)
}

// Heartbeat extends leases and returns a directive for each.
func (s *workerService) Heartbeat(
	ctx context.Context, r *progressorv1.HeartbeatRequest,
) (*progressorv1.HeartbeatResponse, error) {
	ctx = withCaller(ctx)
	directives, err := s.workers.BeatLeases(ctx, r)
	if err != nil {
		return nil, err
	}
	return &progressorv1.HeartbeatResponse{Directives: directives,
		Worker: s.workers.WorkerDirective(ctx, r.GetWorkerId())}, nil
}

// Checkpoint stores events, state and metadata of a lease before its answer.
func (s *workerService) Checkpoint(
	ctx context.Context, r *progressorv1.CheckpointRequest,
) (*progressorv1.CheckpointResponse, error) {
	yield, err := s.workers.CheckpointLease(withCaller(ctx), r.GetLeaseToken(), r.GetLastEventId(),
		&progressorv1.Result{Events: r.GetEvents(), AuxState: r.AuxState, Metadata: r.GetMetadata()})
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
		return nil, &process.InvalidError{
			Field:   strings.TrimPrefix(invalid.Field, "result."), // these are fields of the request itself
			Message: invalid.Message, TooLarge: invalid.TooLarge,
		}
	}
	if err != nil {
		return nil, err
	}
	return &progressorv1.CheckpointResponse{
		LastEventId: r.GetLastEventId() + int64(len(r.GetEvents())), Yield: yield,
	}, nil
}

// Complete stores the answer to a lease.
func (s *workerService) Complete(
	ctx context.Context, r *progressorv1.CompleteRequest,
) (*progressorv1.CompleteResponse, error) {
	ctx = withCaller(ctx)
	a, err := leaseAnswer(r)
	if err != nil {
		return nil, err
	}
	if err := s.workers.CheckNext(ctx, pollParams(r.GetNext())); err != nil {
		return nil, err
	}
	if err := s.workers.CompleteLease(ctx, r.GetLeaseToken(), a); err != nil || r.GetNext() == nil {
		return &progressorv1.CompleteResponse{}, err
	}
	return &progressorv1.CompleteResponse{Next: s.next(ctx, r.GetNext())}, nil
}

// next leases tasks that are returned with the response to an answer. It only logs errors, because
// the client must learn that the answer was stored. The permission to poll was checked before.
func (s *workerService) next(ctx context.Context, r *progressorv1.PollRequest) []*progressorv1.Lease {
	leases, err := s.workers.Poll(ctx, pollParams(r))
	if err != nil {
		s.log.InfoContext(ctx, "cannot lease tasks with the response to an answer", "worker_id", r.GetWorkerId(),
			"error", err)
	}
	s.releaseUndelivered(ctx, leases)
	return leases
}

// answered is a message with an answer to a lease.
type answered interface {
	GetLastEventId() int64
	GetResponse() *progressorv1.ProcessResponse
	GetJobResult() *progressorv1.JobResult
	GetCancelled() *progressorv1.Cancelled
}

func leaseAnswer(r answered) (engine.LeaseAnswer, error) {
	a := engine.LeaseAnswer{LastEventID: r.GetLastEventId()}
	switch {
	case r.GetResponse().GetLastEventId() != 0:
		return a, &process.InvalidError{
			Field: "response.last_event_id", Message: "must not be set: use last_event_id of the request",
		}
	case r.GetResponse() != nil:
		a.Response = r.GetResponse()
	case r.GetJobResult() != nil:
		a.Response = &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
				JobResult: r.GetJobResult().GetResult(),
				Action:    &progressorv1.Result_Complete{Complete: &progressorv1.Complete{}},
			}}}
	case r.GetCancelled() != nil:
		message := r.GetCancelled().GetMessage()
		a.Acknowledged = &message
	default:
		return a, &process.InvalidError{
			Field: "answer", Message: "is required: set one of response, job_result and cancelled",
		}
	}
	return a, nil
}

// CompleteBatch stores the answers to several leases.
func (s *workerService) CompleteBatch(
	ctx context.Context, r *progressorv1.CompleteBatchRequest,
) (*progressorv1.CompleteBatchResponse, error) {
	ctx = withCaller(ctx)
	if err := pull.DistinctLeases("answers", r.GetAnswers()); err != nil {
		return nil, err
	}
	if err := s.workers.CheckNext(ctx, pollParams(r.GetNext())); err != nil {
		return nil, err
	}
	failed := make([]error, len(r.GetAnswers()))
	var ends []pull.LeaseEnd
	var at []int // the index of each among the answers
	for n, answer := range r.GetAnswers() {
		err := s.answers.check(answer)
		var a engine.LeaseAnswer
		if err == nil {
			a, err = leaseAnswer(answer)
		}
		if failed[n] = err; err == nil {
			ends, at = append(ends, pull.LeaseEnd{Token: answer.GetLeaseToken(), Answer: a}), append(at, n)
		}
	}
	for n, err := range s.workers.CompleteLeases(ctx, ends) {
		failed[at[n]] = err
	}
	resp := &progressorv1.CompleteBatchResponse{Outcomes: make([]*progressorv1.AnswerOutcome, len(failed))}
	for n, err := range failed {
		resp.Outcomes[n] = s.outcome(ctx, n, err, r.GetAnswers()[n])
	}
	if r.GetNext() != nil {
		resp.Next = s.next(ctx, r.GetNext())
	}
	return resp, nil
}

// outcome returns what Complete would return for one answer of a batch.
func (s *workerService) outcome(
	ctx context.Context, n int, err error, answer *progressorv1.LeaseAnswer,
) *progressorv1.AnswerOutcome {
	if err == nil {
		return &progressorv1.AnswerOutcome{}
	}
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
		err = within("answers",
			within(fmt.Sprintf("[%d]", n),
				&process.InvalidError{Field: invalid.Field, Message: invalid.Message, TooLarge: invalid.TooLarge}))
	}
	if denied, ok := errors.AsType[*process.DeniedError](err); ok {
		err = &process.DeniedError{
			Field: fmt.Sprintf("answers[%d].%s", n, denied.Field), Namespace: denied.Namespace, Message: denied.Message,
		}
	}
	connectErr, internal := toConnect(err, answer)
	if internal {
		s.log.WarnContext(ctx, "an answer in a batch failed with an internal error", "error", err)
	}
	failed := &progressorv1.AnswerError{Message: connectErr.Message()}
	for _, d := range connectErr.Details() {
		if value, err := d.Value(); err == nil {
			failed.Detail, _ = value.(*progressorv1.ErrorDetail)
		}
	}
	return &progressorv1.AnswerOutcome{Error: failed}
}

// Release releases leases without an answer, and ends the polls of a worker that stops.
func (s *workerService) Release(
	ctx context.Context, r *progressorv1.ReleaseRequest,
) (*progressorv1.ReleaseResponse, error) {
	ctx = withCaller(ctx)
	if r.GetEndPolls() { // end the polls first, so that they do not lease the released tasks
		s.workers.EndPolls(ctx, r.GetWorkerId())
	}
	return &progressorv1.ReleaseResponse{}, s.workers.ReleaseLeases(ctx, r.GetLeaseTokens(), r.GetDelay().AsDuration())
}

// ListWorkers lists the workers of a namespace.
func (s *workerService) ListWorkers(
	ctx context.Context, r *progressorv1.ListWorkersRequest,
) (*progressorv1.ListWorkersResponse, error) {
	list, next, err := s.workers.ListWorkers(ctx, r)
	for _, w := range list {
		w.Namespaces = visibleNames(ctx, w.GetNamespaces())
	}
	return &progressorv1.ListWorkersResponse{Workers: list, NextPageToken: next}, err
}

// GetWorker returns a worker with its leases in a namespace.
func (s *workerService) GetWorker(
	ctx context.Context, r *progressorv1.GetWorkerRequest,
) (*progressorv1.GetWorkerResponse, error) {
	resp, err := s.workers.GetWorker(ctx, r)
	if err == nil {
		resp.Worker.Namespaces = visibleNames(ctx, resp.GetWorker().GetNamespaces())
	}
	return resp, err
}

// StopWorker sends a worker the directive to accept no new tasks, to stop, or to continue.
func (s *workerService) StopWorker(
	ctx context.Context, r *progressorv1.StopWorkerRequest,
) (*progressorv1.StopWorkerResponse, error) {
	if err := s.checkStop(ctx, r); err != nil {
		return nil, err
	}
	w, err := s.workers.StopWorker(ctx, r, actorOf(ctx))
	if err == nil {
		w.Namespaces = visibleNames(ctx, w.GetNamespaces())
	}
	return &progressorv1.StopWorkerResponse{Worker: w}, err
}

// checkStop returns an error if the principal of a request may not operate all namespaces of the
// worker, because the worker stops in all of them.
func (s *workerService) checkStop(ctx context.Context, r *progressorv1.StopWorkerRequest) error {
	const needs = progressorv1.Permission_PERMISSION_PROCESS_OPERATE
	p := principalOf(ctx)
	if p == nil || p.CanEverywhere(needs) {
		return nil
	}
	w, err := s.workers.Worker(ctx, r.GetNamespace(), r.GetWorkerId())
	if err != nil {
		return err
	}
	names := w.GetNamespaces()
	elsewhere := len(names) >= pull.MaxShownNamespaces || // there may be more
		slices.ContainsFunc(names, func(name string) bool { return !p.Can(needs, name) })
	if !elsewhere {
		return nil
	}
	denied := connect.NewError(connect.CodePermissionDenied, fmt.Errorf(
		"StopWorker needs the permission %s in all namespaces of the worker, and %s does not have it (roles with it: "+
			"%s)",
		auth.PermissionName(needs), p.Name, strings.Join(auth.RolesWith(needs), ", ")))
	addDetail(denied, &progressorv1.ErrorDetail{
		Reason: progressorv1.ErrorDetail_REASON_PERMISSION, Namespace: r.GetNamespace(),
	})
	return denied
}

// visibleNames returns the namespaces that the principal of a request may see.
func visibleNames(ctx context.Context, names []string) []string {
	p := principalOf(ctx)
	if p == nil {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !p.Can(progressorv1.Permission_PERMISSION_NAMESPACE_READ, name)
	})
}
