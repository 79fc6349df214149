package insight

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/storage/search"
)

const (
	// maxBroken is the maximum number of processes in ERROR that ListErrors reads, newest first,
	// per namespace and in total.
	maxBroken = 10_000
	// maxErrorDetail is the maximum length of a group's message, in characters.
	maxErrorDetail = 512
)

// groupKey identifies a group. A filter applies to one namespace, and to processes, jobs or runs.
type groupKey struct {
	namespace, fingerprint string
	jobs, runs             bool
}

// errorGroups are groups by their keys. Errors must be added newest first.
type errorGroups struct {
	list  []*progressorv1.ErrorGroup
	byKey map[groupKey]*progressorv1.ErrorGroup
}

func (l *errorGroups) add(key groupKey, id, reason, message, filter string, at time.Time) {
	g := l.byKey[key]
	if g == nil {
		g = &progressorv1.ErrorGroup{
			Namespace: key.namespace, Fingerprint: key.fingerprint, Jobs: key.jobs, Runs: key.runs,
			Reason: reason, Message: message, LastTime: timestamppb.New(at), NewestId: id,
			Filter: filter + "fingerprint = " + search.Quote(key.fingerprint, false),
		}
		l.byKey[key] = g
		l.list = append(l.list, g)
	}
	g.Count++
	g.FirstTime = timestamppb.New(at)
}

// groupErrors groups processes in ERROR, failed jobs and failed runs by namespace and fingerprint.
// Each argument must be ordered by time, newest first. Each failing cron is a group that consists
// of its failures. The largest group comes first.
func groupErrors(
	broken []insight.Broken, runs []insight.FailedRun, crons []insight.FailingCron,
) []*progressorv1.ErrorGroup {
	groups := errorGroups{byKey: map[groupKey]*progressorv1.ErrorGroup{}}
	for n := range broken {
		b := &broken[n]
		// A failed job of a step is reported by its run, because only the run can be retried.
		if strings.HasPrefix(b.ProcessID, process.StepPrefix) {
			continue
		}
		key := groupKey{namespace: b.Namespace, fingerprint: b.Fingerprint, jobs: b.Kind == process.JobKind}
		filter := "status = ERROR AND "
		if key.jobs {
			filter = ""
		}
		groups.add(key, b.ProcessID, b.Reason, b.Message, filter, b.ErrorTime)
	}
	for key, g := range groups.byKey {
		ofJobs := groupKey{namespace: key.namespace, fingerprint: key.fingerprint, jobs: true}
		if !key.jobs && groups.byKey[ofJobs] != nil { // jobs have the same error
			g.Filter += " AND kind != " + process.JobKind
		}
	}
	for n := range runs {
		r := &runs[n]
		key := groupKey{namespace: r.Namespace, fingerprint: r.Fingerprint, runs: true}
		groups.add(key, r.RunID, r.Reason, r.Message, "", r.FinishedTime)
	}
	for n := range crons {
		c := &crons[n]
		groups.list = append(groups.list, &progressorv1.ErrorGroup{
			Namespace: c.Namespace, Fingerprint: c.Fingerprint, CronId: c.CronID, NewestId: c.CronID, Reason: c.Reason,
			Message: c.Message, Count: c.Failures, Filter: "cron_id = " + search.Quote(c.CronID, false),
			FirstTime: timestamppb.New(c.FirstTime), LastTime: timestamppb.New(c.LastTime),
		})
	}
	slices.SortFunc(groups.list, func(a, b *progressorv1.ErrorGroup) int { return rankOf(a).compare(rankOf(b)) })
	return groups.list
}

// errorsToken is the position of a group in the list. A page token contains the position of the
// last group of its page.
type errorsToken struct {
	Count       int64  `json:"c"`
	Namespace   string `json:"n"`
	Fingerprint string `json:"f"`
	Of          string `json:"o"` // what the group contains, and the ID for a cron
}

func rankOf(g *progressorv1.ErrorGroup) errorsToken {
	of := fmt.Sprint(g.GetRuns(), g.GetJobs(), g.GetCronId())
	return errorsToken{g.GetCount(), g.GetNamespace(), g.GetFingerprint(), of}
}

// compare orders groups by size, largest first.
func (t errorsToken) compare(other errorsToken) int {
	return cmp.Or(cmp.Compare(other.Count, t.Count), strings.Compare(t.Namespace, other.Namespace),
		strings.Compare(t.Fingerprint, other.Fingerprint), strings.Compare(t.Of, other.Of))
}

// ListErrors groups processes in ERROR and failed runs of flows by their errors, and returns
// failing crons. If the namespace is "", it covers all namespaces that the client may see. The page
// size is 100 by default and at most 1,000 groups.
func (i *Insight) ListErrors(
	ctx context.Context, namespace string, pageSize int, pageToken string,
) ([]*progressorv1.ErrorGroup, string, error) {
	names, leave, err := i.engine.Enter(ctx, namespace)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	broken, err := insight.ListBroken(ctx, i.store, names, maxErrorDetail, maxBroken)
	if err != nil {
		return nil, "", err
	}
	runs, err := insight.ListFailedRuns(ctx, i.store, names, maxErrorDetail, maxBroken)
	if err != nil {
		return nil, "", err
	}
	crons, err := insight.ListFailingCrons(ctx, i.store, names, maxErrorDetail)
	if err != nil {
		return nil, "", err
	}
	groups := groupErrors(broken, runs, crons)
	if pageToken != "" {
		var after errorsToken
		raw, err := base64.RawURLEncoding.DecodeString(pageToken)
		if err == nil {
			err = json.Unmarshal(raw, &after)
		}
		if err != nil || after.Count < 1 {
			return nil, "", process.InvalidPageToken()
		}
		first := slices.IndexFunc(groups, func(g *progressorv1.ErrorGroup) bool { return after.compare(rankOf(g)) < 0 })
		if first < 0 {
			first = len(groups)
		}
		groups = groups[first:]
	}
	if pageSize <= 0 {
		pageSize = 100
	}
	if pageSize = min(pageSize, 1000); len(groups) <= pageSize {
		return groups, "", nil
	}
	groups = groups[:pageSize]
	next, err := json.Marshal(rankOf(groups[pageSize-1]))
	return groups, base64.RawURLEncoding.EncodeToString(next), err
}
