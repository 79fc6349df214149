package insight

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/storage/search"
)

const (
	// maxBroken is how many processes in ERROR ListErrors reads, newest first, per namespace and in
	// total.
	maxBroken = 10_000
	// maxErrorDetail is how many characters of a detail are compared.
	maxErrorDetail = 512
)

// errorParts matches the parts of a message that differ from process to process: quoted text, and
// words with a digit together with the words joined to them (7f3c-12, A-9, 10.0.0.1:5432,
// /orders/17).
var errorParts = regexp.MustCompile(`"[^"]*"|'[^']*'|` +
	`(?:[\pL\pN_]*[-.:/@])*[\pL\pN_]*\pN[\pL\pN_]*(?:[-.:/@][\pL\pN_]+)*`)

// fingerprint returns the same value for errors with the same reason and message, ignoring numbers
// and IDs.
func fingerprint(reason, message string) string {
	sum := sha256.Sum256([]byte(reason + "\x00" + errorParts.ReplaceAllString(message, "#")))
	return hex.EncodeToString(sum[:8])
}

// errorGroup is a group of processes with the same error.
type errorGroup struct {
	message *progressorv1.ErrorGroup
	common  string // common prefix of all details
	whole   bool   // all details are equal to common
}

func (g *errorGroup) add(b *insight.Broken) {
	g.message.Count++
	g.message.FirstTime = timestamppb.New(b.ErrorTime) // the processes are ordered by time, newest first
	n := 0
	for n < len(g.common) && n < len(b.Detail) && g.common[n] == b.Detail[n] {
		n++
	}
	for n > 0 && n < len(g.common) && !utf8.RuneStart(g.common[n]) {
		n--
	}
	g.whole = g.whole && n == len(g.common) && n == len(b.Detail) && !b.Cut
	g.common = g.common[:n]
}

// filter returns a list filter that matches the processes of the group.
func (g *errorGroup) filter() string {
	if g.common == "" {
		return "status = ERROR"
	}
	return "status = ERROR AND detail = " + search.Quote(g.common, !g.whole)
}

// groupKey identifies a group. It includes the namespace because a filter applies to one namespace.
type groupKey struct{ namespace, fingerprint string }

// groupErrors groups processes in ERROR by namespace and fingerprint. broken must be ordered by
// time, newest first. The largest group comes first.
func groupErrors(broken []insight.Broken) []*progressorv1.ErrorGroup {
	byKey := map[groupKey]*errorGroup{}
	var groups []*errorGroup
	for n := range broken {
		b := &broken[n]
		key := groupKey{b.Namespace, fingerprint(b.Reason, b.Detail)}
		g := byKey[key]
		if g == nil {
			g = &errorGroup{common: b.Detail, whole: !b.Cut, message: &progressorv1.ErrorGroup{
				Namespace: key.namespace, Fingerprint: key.fingerprint, Reason: b.Reason, Message: b.Detail,
				LastTime: timestamppb.New(b.ErrorTime),
			}}
			byKey[key] = g
			groups = append(groups, g)
		}
		g.add(b)
	}
	list := make([]*progressorv1.ErrorGroup, len(groups))
	for n, g := range groups {
		g.message.Filter = g.filter()
		list[n] = g.message
	}
	sortGroups(list)
	return list
}

func sortGroups(list []*progressorv1.ErrorGroup) {
	slices.SortFunc(list, func(a, b *progressorv1.ErrorGroup) int { return rankOf(a).compare(rankOf(b)) })
}

// groupRuns groups runs that are FAILED or EXPIRED by namespace and fingerprint. runs must be
// ordered by time, newest first.
func groupRuns(runs []insight.FailedRun) (list []*progressorv1.ErrorGroup) {
	type kinds struct{ statuses, types []string }
	byKey := map[groupKey]*progressorv1.ErrorGroup{}
	all := map[groupKey]*kinds{}
	add := func(list *[]string, word string) {
		if !slices.Contains(*list, word) {
			*list = append(*list, word)
		}
	}
	for n := range runs {
		r := &runs[n]
		// differs from the key of processes with the same message
		key := groupKey{r.Namespace, fingerprint("run "+r.Reason, r.Detail)}
		if byKey[key] == nil {
			byKey[key] = &progressorv1.ErrorGroup{
				Namespace: key.namespace, Fingerprint: key.fingerprint, Reason: r.Reason, Message: r.Detail,
				LastTime: timestamppb.New(r.FinishedTime), Runs: true,
			}
			all[key] = &kinds{}
			list = append(list, byKey[key])
		}
		g := byKey[key]
		g.Count++
		g.FirstTime = timestamppb.New(r.FinishedTime)
		add(&all[key].statuses, strings.ToUpper(string(r.Status)))
		add(&all[key].types, r.TemplateType)
	}
	for _, g := range list {
		k := all[groupKey{g.GetNamespace(), g.GetFingerprint()}]
		slices.Sort(k.statuses)
		g.Filter = "status = " + strings.Join(k.statuses, " OR status = ")
		if len(k.types) == 1 {
			if len(k.statuses) > 1 {
				g.Filter = "(" + g.Filter + ")"
			}
			g.Filter += " AND template_type = " + search.Quote(k.types[0], false)
		}
	}
	return list
}

// errorsToken is the position of a group in the list. A page token has the position of the last
// group of its page.
type errorsToken struct {
	Count       int64  `json:"c"`
	Namespace   string `json:"n"`
	Fingerprint string `json:"f"`
}

func rankOf(g *progressorv1.ErrorGroup) errorsToken {
	return errorsToken{g.GetCount(), g.GetNamespace(), g.GetFingerprint()}
}

// compare orders groups by size, largest first.
func (t errorsToken) compare(other errorsToken) int {
	return cmp.Or(cmp.Compare(other.Count, t.Count), strings.Compare(t.Namespace, other.Namespace),
		strings.Compare(t.Fingerprint, other.Fingerprint))
}

// ListErrors groups processes in ERROR and failed runs of flows by their errors. If the namespace
// is "", it covers all namespaces. The page size is 100 by default and at most 1,000 groups.
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
	// A failed job of a step is reported by its run, because only the run can be retried.
	broken = slices.DeleteFunc(broken, func(b insight.Broken) bool {
		return strings.HasPrefix(b.ProcessID, process.StepPrefix)
	})
	groups := append(groupErrors(broken), groupRuns(runs)...)
	sortGroups(groups)
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
