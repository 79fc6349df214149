package storage

import (
	"context"
	"errors"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ClaimLimit limits the tasks of a namespace that a node may claim.
type ClaimLimit struct {
	Namespace   string
	Max         int
	StepTimeout time.Duration
	Own         bool // only tasks that the engine itself runs; workers take the others
	Urgent      bool // with Own: only tasks of urgent kinds
	Pauses      bool // the namespace has paused names, which are skipped
}

// tasks returns the limit of one statement.
func (l *ClaimLimit) tasks() int32 { return int32(min(l.Max, maxFlushItems)) }

// SearchCalls claims tasks that wait for a slot, up to the limit of each namespace, but at most 256
// per namespace. It skips processes that other transactions have locked.
func (s *Store) SearchCalls(ctx context.Context, limits []ClaimLimit) ([]Claim, error) {
	rows, err := s.q.SearchCalls(ctx, s.hot, s.searchCallsParams(limits))
	return rows, mapped("search calls", err)
}

func (s *Store) searchCallsParams(limits []ClaimLimit) dbsqlc.SearchCallsParams {
	arg := dbsqlc.SearchCallsParams{NodeID: s.nodeID.Load()}
	for _, r := range limits {
		arg.Append(dbsqlc.SearchCallsItem{
			Namespace: r.Namespace, Lim: r.tasks(), StepTimeoutUs: r.StepTimeout.Microseconds(),
			Own: r.Own, Urgent: r.Urgent, Mode: s.EventModeOf(r.Namespace), Pauses: r.Pauses,
		})
	}
	return arg
}

// SearchLockedCalls claims like SearchCalls, but first locks the process of the first task in a
// namespace. It waits at most the given time for this lock. If it does not get the lock, it claims
// nothing.
func (s *Store) SearchLockedCalls(
	ctx context.Context, limits []ClaimLimit, first FirstCall, wait time.Duration,
) (claims []Claim, err error) {
	arg := s.searchCallsParams(limits)
	err = s.ScanLocked(ctx, "search calls", first, wait, func(ctx context.Context, db DB) (err error) {
		claims, err = s.q.SearchCalls(ctx, db, arg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return claims, nil
}

// ListSkippedCalls returns the given namespaces in which tasks still wait for a slot, because
// SearchCalls skipped their processes. It uses only Namespace and Pauses of each limit.
func (s *Store) ListSkippedCalls(ctx context.Context, limits []ClaimLimit) ([]string, error) {
	var arg dbsqlc.ListSkippedCallsParams
	for _, r := range limits {
		arg.Append(dbsqlc.ListSkippedCallsItem{Namespace: r.Namespace, Pauses: r.Pauses})
	}
	names, err := s.q.ListSkippedCalls(ctx, s.hot, arg)
	return names, mapped("list skipped calls", err)
}

// minLookAgain is the minimum time after which a namespace is scanned again because a scan skipped
// a due timer. SaveResult promotes such a timer, unless it ran just before the timer was due, or
// stored nothing. The process may also have been locked by another transaction.
const minLookAgain = 20 * time.Millisecond

// SearchTimers claims due tasks, longest due first. next has the time until each namespace must be
// searched again: when its next task is due or, if due tasks remain, after a wait that grows with
// the time for which they have been due. Both statements take one round trip.
func (s *Store) SearchTimers(
	ctx context.Context, limits []ClaimLimit,
) (claims []Claim, next map[string]time.Duration, err error) {
	arg := dbsqlc.SearchTimersParams{NodeID: s.nodeID.Load()}
	for _, r := range limits {
		arg.Append(dbsqlc.SearchTimersItem{
			Namespace: r.Namespace, Lim: r.tasks(), StepTimeoutUs: r.StepTimeout.Microseconds(),
			Own: r.Own, Mode: s.EventModeOf(r.Namespace), Pauses: r.Pauses,
		})
	}
	next = map[string]time.Duration{}
	conn, err := s.hot.Acquire(ctx)
	if err != nil {
		return nil, next, mapped("search timers", err)
	}
	defer conn.Release()
	err = pipeline(ctx, conn.Conn(), []stage{
		func(ctx context.Context, db DB) error {
			rows, err := s.q.SearchTimers(ctx, db, arg)
			claims = claimsOf(rows)
			return err
		},
		func(ctx context.Context, db DB) error {
			rows, err := s.q.NextTimes(ctx, db, arg.Namespaces)
			for _, r := range rows {
				delay, passed := microseconds(r.DelayUs), microseconds(r.PassedUs)
				if passed >= 0 {
					again := max(passed/2, minLookAgain) // rarer and rarer while the timer is skipped
					if delay < 0 || delay > again {
						delay = again
					}
				}
				if delay >= 0 {
					next[r.Namespace] = delay
				}
			}
			return err
		},
	})
	if err != nil {
		return nil, nil, mapped("search timers", err)
	}
	return claims, next, nil
}

// WaitingNamespace is a namespace with tasks that wait for a slot.
type WaitingNamespace = dbsqlc.NamespacesWaitingRow

// NamespacesWaiting returns the namespaces with tasks that wait for a slot, sorted by name. It
// reads no rows of other namespaces.
func (s *Store) NamespacesWaiting(ctx context.Context) ([]WaitingNamespace, error) {
	rows, err := s.q.NamespacesWaiting(ctx, s.hot)
	return rows, mapped("namespaces waiting", err)
}

// maxDueTimers is the number of tasks that NextTimers reads before it queries each namespace
// instead.
const maxDueTimers = 1000

// NextTimers returns the namespaces with tasks that are due within a period, each with the time
// until its first task is due. The result may contain namespaces whose tasks are due later. It
// costs one index lookup if nothing is due, and one per namespace with timers if very many are due.
func (s *Store) NextTimers(ctx context.Context, within time.Duration) (map[string]time.Duration, error) {
	next := map[string]time.Duration{}
	due, err := s.q.DueTimers(ctx, s.hot, dbsqlc.DueTimersParams{WithinUs: within.Microseconds(), Lim: maxDueTimers})
	if err != nil {
		return nil, mapped("due timers", err)
	}
	tasks := 0
	for _, r := range due {
		next[r.Namespace] = microseconds(r.DelayUs)
		tasks += int(r.Tasks)
	}
	if tasks < maxDueTimers {
		return next, nil
	}
	rows, err := s.q.NextTimers(ctx, s.hot)
	for _, r := range rows {
		next[r.Namespace] = microseconds(r.DelayUs)
	}
	return next, mapped("next timers", err)
}

// maxScanBytes is the approximate limit of the bytes that one scan claims. The statements contain
// the same number.
const maxScanBytes = 2 << 20

// maxRunningBytes is the approximate limit of the bytes of running tasks that one statement reads.
const maxRunningBytes = 8 << 20

// ScanIsTruncated reports whether the byte limit of a scan may have left tasks behind.
func ScanIsTruncated(claims []Claim) bool {
	bytes := 0
	for n := range claims {
		bytes += len(claims[n].Args) + len(claims[n].Context) + len(claims[n].AuxState)
	}
	return bytes >= maxScanBytes
}

// TimedOut reports whether a statement was cancelled because it took too long.
func TimedOut(err error) bool {
	return !unconnected(err) && (SQLState(err) == stateQueryCanceled || errors.Is(err, context.DeadlineExceeded))
}

// claimsOf converts rows with the columns of SearchCalls to claims.
func claimsOf[Row dbsqlc.SearchTimersRow | dbsqlc.ListRunningRow](rows []Row) []Claim {
	claims := make([]Claim, len(rows))
	for n := range rows {
		claims[n] = Claim(rows[n])
	}
	return claims
}

// Zombie is a running row whose attempt was lost.
type Zombie = dbsqlc.ReadZombiesRow

// ZombieClaim returns a claim for a zombie. Only its process, task, attempt, token and kind are
// set.
func ZombieClaim(z *Zombie) *Claim {
	return &Claim{
		Namespace: z.Namespace, ProcessID: z.ProcessID, TaskID: z.TaskID, TaskType: z.TaskType, Attempt: z.Attempt,
		FencingToken: z.FencingToken, Kind: z.Kind,
		KindName: z.KindName, KindOptions: z.KindOptions,
		KindTimeoutUs: z.KindTimeoutUs, KindTakeovers: z.KindTakeovers, KindTags: z.KindTags,
		KindFailures: z.KindFailures, KindKeysVersion: z.KindKeysVersion, KindKeys: z.KindKeys,
		KindKeysNow: z.KindKeysNow,
	}
}

// Suspect is a running row that may be a zombie.
type Suspect struct {
	AttemptRef
	NodeDead bool          // the node that claimed the task was declared dead
	Leased   bool          // a worker holds the task
	Expires  time.Time     // end of the lease
	Expired  bool          // the lease has expired by the database clock
	Renewal  time.Duration // a live worker renews its lease within this time
	Overdue  bool          // the deadline has passed by the database clock
	Timeout  time.Duration // timeout of the attempt
}

// ListSuspects returns at most limit running rows that may be zombies. A task that no worker holds
// may exceed its deadline by margin.
func (s *Store) ListSuspects(ctx context.Context, margin time.Duration, limit int) ([]Suspect, error) {
	rows, err := s.q.ListSuspects(ctx, s.kept, dbsqlc.ListSuspectsParams{
		MarginUs: margin.Microseconds(), NodeID: s.nodeID.Load(), Lim: int32(limit),
	})
	suspects := make([]Suspect, len(rows))
	for n, r := range rows {
		suspects[n] = Suspect{
			AttemptRef: AttemptRef{
				Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, FencingToken: r.FencingToken,
			},
			NodeDead: r.NodeDead, Leased: r.Leased, Expires: r.ExpiresTime, Expired: r.Expired,
			Renewal: microseconds(r.RenewalUs),
			Overdue: r.Overdue, Timeout: microseconds(r.TimeoutUs),
		}
	}
	return suspects, mapped("list suspects", err)
}

// ReadZombies returns the rows of suspects that are still zombies, at most about 8 MiB: those
// with the smallest tokens.
func (s *Store) ReadZombies(ctx context.Context, suspects []Suspect, margin time.Duration) ([]Zombie, error) {
	a := dbsqlc.ReadZombiesParams{MarginUs: margin.Microseconds(), MaxBytes: maxRunningBytes}
	for _, x := range suspects {
		a.Append(dbsqlc.ReadZombiesItem{Key: x.Key, FencingToken: x.FencingToken})
	}
	rows, err := s.q.ReadZombies(ctx, s.kept, a)
	return rows, mapped("collect zombies", err)
}

// ListRunning returns running rows of this node that are older than age and not among the known
// tokens, except leased tasks. It returns those with the smallest tokens, at most 1,000 and about 8
// MiB.
func (s *Store) ListRunning(ctx context.Context, known []int64, age time.Duration) ([]Claim, error) {
	if known == nil {
		known = []int64{} // a comparison with NULL would exclude all rows
	}
	rows, err := s.q.ListRunning(ctx, s.kept, dbsqlc.ListRunningParams{
		NodeID: s.nodeID.Load(), KnownTokens: known, OlderThanUs: age.Microseconds(), MaxBytes: maxRunningBytes,
	})
	return claimsOf(rows), mapped("list running", err)
}

// CountBacklog returns how many tasks of a namespace wait for a slot, counted up to limit.
func (s *Store) CountBacklog(ctx context.Context, namespace string, limit int) (int, error) {
	n, err := s.q.CountBacklog(ctx, s.hot, dbsqlc.CountBacklogParams{Namespace: namespace, Lim: int32(limit)})
	return int(n), mapped("count backlog", err)
}
