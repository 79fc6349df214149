package engine

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
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/search"
)

const (
	// maxBroken is how many processes in ERROR a list of errors looks at, of each namespace and in all: the newest.
	maxBroken = 10_000
	// maxErrorDetail is how many characters of a detail count.
	maxErrorDetail = 512
)

// The parts of a message that differ from process to process: what stands in quotes, and words with a digit, with what is joined to them
// (7f3c-12, A-9, 10.0.0.1:5432, /orders/17).
var errorParts = regexp.MustCompile(`"[^"]*"|'[^']*'|(?:[\pL\pN_]*[-.:/@])*[\pL\pN_]*\pN[\pL\pN_]*(?:[-.:/@][\pL\pN_]+)*`)

// fingerprint is the same for errors of the same reason and message, but for their numbers and ids.
func fingerprint(reason, message string) string {
	sum := sha256.Sum256([]byte(reason + "\x00" + errorParts.ReplaceAllString(message, "#")))
	return hex.EncodeToString(sum[:8])
}

// errorGroup is processes that were broken by the same.
type errorGroup struct {
	message *progressorv1.ErrorGroup
	common  string // what the details of all of them begin with
	whole   bool   // it is all of the detail of all of them
}

func (g *errorGroup) add(b *storage.Broken) {
	g.message.Count++
	g.message.FirstTime = timestamppb.New(b.ErrorTime) // the newest came first
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

// filter finds the processes of the group in a list.
func (g *errorGroup) filter() string {
	if g.common == "" {
		return "status = ERROR"
	}
	return "status = ERROR AND detail = " + search.Quote(g.common, !g.whole)
}

// groupKey tells groups from each other: a filter finds those of one namespace.
type groupKey struct{ namespace, fingerprint string }

// groupErrors groups processes in ERROR, the newest of which comes first, by their namespaces and fingerprints. The largest group comes first.
func groupErrors(broken []storage.Broken) []*progressorv1.ErrorGroup {
	byKey := map[groupKey]*errorGroup{}
	var groups []*errorGroup
	for n := range broken {
		b := &broken[n]
		key := groupKey{b.Namespace, fingerprint(b.Reason, b.Detail)}
		g := byKey[key]
		if g == nil {
			g = &errorGroup{common: b.Detail, whole: !b.Cut, message: &progressorv1.ErrorGroup{
				Namespace: key.namespace, Fingerprint: key.fingerprint, Reason: b.Reason, Message: b.Detail, LastTime: timestamppb.New(b.ErrorTime),
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

// groupRuns groups runs that are FAILED or EXPIRED, the newest of which comes first, by their namespaces and fingerprints.
func groupRuns(runs []storage.FailedRun) (list []*progressorv1.ErrorGroup) {
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
		key := groupKey{r.Namespace, fingerprint("run "+r.Reason, r.Detail)} // another one than that of processes which say the same
		if byKey[key] == nil {
			byKey[key] = &progressorv1.ErrorGroup{
				Namespace: key.namespace, Fingerprint: key.fingerprint, Reason: r.Reason, Message: r.Detail, LastTime: timestamppb.New(r.FinishedTime), Runs: true,
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

// errorsToken is where a group stands in the list; a page token is that of its last one.
type errorsToken struct {
	Count       int64  `json:"c"`
	Namespace   string `json:"n"`
	Fingerprint string `json:"f"`
}

func rankOf(g *progressorv1.ErrorGroup) errorsToken {
	return errorsToken{g.GetCount(), g.GetNamespace(), g.GetFingerprint()}
}

// compare orders groups, the largest first.
func (t errorsToken) compare(other errorsToken) int {
	return cmp.Or(cmp.Compare(other.Count, t.Count), strings.Compare(t.Namespace, other.Namespace), strings.Compare(t.Fingerprint, other.Fingerprint))
}

// ListErrors groups the processes in ERROR, and the runs of flows that have failed, by what broke them. Namespace "": of all. PageSize: default 100, at most 1,000 groups.
func (e *Engine) ListErrors(ctx context.Context, namespace string, pageSize int, pageToken string) ([]*progressorv1.ErrorGroup, string, error) {
	share := e.shareOf(namespace)
	if err := e.admit(share); err != nil {
		return nil, "", err
	}
	defer e.leave(share)
	names, err := e.namesOf(ctx, namespace)
	if err != nil {
		return nil, "", err
	}
	broken, err := e.store.ListBroken(ctx, names, maxErrorDetail, maxBroken)
	if err != nil {
		return nil, "", err
	}
	runs, err := e.store.ListFailedRuns(ctx, names, maxErrorDetail, maxBroken)
	if err != nil {
		return nil, "", err
	}
	// What a job of a step has failed by its run says, which alone can be taken up.
	broken = slices.DeleteFunc(broken, func(b storage.Broken) bool { return strings.HasPrefix(b.ProcessID, process.StepPrefix) })
	groups := append(groupErrors(broken), groupRuns(runs)...)
	sortGroups(groups)
	if pageToken != "" {
		var after errorsToken
		raw, err := base64.RawURLEncoding.DecodeString(pageToken)
		if err == nil {
			err = json.Unmarshal(raw, &after)
		}
		if err != nil || after.Count < 1 {
			return nil, "", &process.InvalidError{Field: "page_token", Message: "it is not of a list of errors"}
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
