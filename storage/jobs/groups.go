package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// The states of a slot whose member has ended.
const (
	PlaceSucceeded = "succeeded"
	PlaceFailed    = "failed"
	PlaceCancelled = "cancelled"
)

// Group is a job that several workers run.
type Group struct {
	Key          process.Key
	Cancelling   bool
	CancelReason string
	Options      []byte
	Places       []Place // in order of creation; set by groupCheck.read
}

// Place is a slot of a group. A member is the job that one worker of the group runs.
type Place struct {
	Member   process.Key
	WorkerID string // "" if it is free
	State    string // "" if the member has not ended
	Asked    bool   // the member was asked to end
	Failure  []byte // JSON
}

// GroupRules are the rules of a group.
type GroupRules struct {
	Count, MaxFailures int32
	WorkerIDs          []string // empty means any
}

// GroupStep is a decision about a group.
type GroupStep struct {
	Outcome string // PlaceSucceeded, PlaceFailed or PlaceCancelled; "" if it continues
	Failure []byte // only for PlaceFailed; JSON
	Detail  string
	Kept    bool // only for PlaceSucceeded: whether the result is kept for TTL
	TTL     time.Duration

	Drop   []process.Key // members whose slots are removed
	Open   []string      // slots to create: the worker that each is for, or "" for any worker
	Cancel []process.Key // members to cancel
	Reason string        // reason of the cancel
	Takers []string      // workers that get no other slot
	// Evict has members whose worker is no longer allowed. The group is checked until they have
	// ended.
	Evict []process.Key
}

// GroupChanges is the result of CheckGroups.
type GroupChanges struct {
	Groups   int           // number of groups
	Notified []process.Key // targets of new messages
	Ended    []process.Key // groups that have ended
	Evict    []process.Key // members whose worker is no longer allowed; they must be ended at once
}

// CheckGroups takes at most limit groups that need a decision, and stores the decisions. rules
// parses the options of a group. decide must have no side effects.
func CheckGroups(
	ctx context.Context, s *storage.Store, limit int, rules func(*Group) GroupRules,
	decide func(*Group, GroupRules) GroupStep,
) (GroupChanges, error) {
	var changes GroupChanges
	err := s.TakeTasks(ctx, "read groups", func(ctx context.Context, db storage.DB) error {
		changes = GroupChanges{}
		rows, err := dbsqlc.New().TakeGroups(ctx, db, int32(limit))
		if err != nil || len(rows) == 0 {
			return err
		}
		groups := make([]*Group, len(rows))
		parsed := make([]GroupRules, len(rows))
		for n, r := range rows {
			groups[n] = &Group{
				Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, Cancelling: r.Cancelling,
				CancelReason: r.CancelReason, Options: r.Options,
			}
		}
		slices.SortFunc(groups, func(a, b *Group) int { return a.Key.Compare(b.Key) })
		for n, g := range groups {
			parsed[n] = rules(g)
		}
		l := groupCheck{ctx: ctx, store: s, db: db, q: dbsqlc.New()}
		if err := l.read(groups, parsed); err != nil {
			return err
		}
		for n, g := range groups {
			step := decide(g, parsed[n])
			l.add(g, step)
			changes.Evict = append(changes.Evict, step.Evict...)
		}
		changes.Groups = len(groups)
		return l.write(&changes)
	})
	return changes, err
}

// WakeGroups marks groups in some namespaces to be checked again, at most limit in each.
func WakeGroups(ctx context.Context, s *storage.Store, namespaces []string, limit int32) error {
	return s.TakeTasks(ctx, "wake groups", func(ctx context.Context, db storage.DB) error {
		_, err := dbsqlc.New().WakeGroups(ctx, db, dbsqlc.WakeGroupsParams{Namespaces: namespaces, Lim: limit})
		return err
	})
}

// groupCheck is the transaction of CheckGroups, with the rows that it will write.
type groupCheck struct {
	ctx   context.Context
	store *storage.Store
	db    storage.DB
	q     *dbsqlc.Queries

	drop   dbsqlc.DropPlacesParams
	takers dbsqlc.SetTakersParams
	open   dbsqlc.OpenPlacesParams
	cancel dbsqlc.CancelMembersParams
	rest   dbsqlc.RestGroupsParams
	end    dbsqlc.EndGroupsParams
}

// read locks the rows of groups and reads their slots.
func (l *groupCheck) read(groups []*Group, rules []GroupRules) error {
	var put dbsqlc.PutGroupsParams
	var places dbsqlc.ReadPlacesParams
	byKey := map[process.Key]*Group{}
	for n, g := range groups {
		put.Append(dbsqlc.PutGroupsItem{
			Key: g.Key, Count: rules[n].Count, MaxFailures: rules[n].MaxFailures,
			WorkerIds: textList(rules[n].WorkerIDs),
		})
		places.Append(dbsqlc.ReadPlacesItem{Namespace: g.Key.Namespace, JobID: g.Key.ProcessID})
		byKey[g.Key] = g
	}
	if err := l.q.PutGroups(l.ctx, l.db, put); err != nil {
		return err
	}
	rows, err := l.q.ReadPlaces(l.ctx, l.db, places)
	for _, r := range rows {
		g := byKey[process.Key{Namespace: r.Namespace, ProcessID: r.JobID}]
		g.Places = append(g.Places, Place{
			Member: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, WorkerID: r.WorkerID, State: r.State,
			Asked: r.Asked, Failure: r.Failure,
		})
	}
	return err
}

// textList returns a list as JSON, or "" if it is empty.
func textList(list []string) string {
	if len(list) == 0 {
		return ""
	}
	text, _ := json.Marshal(list) // cannot fail: list contains only strings
	return string(text)
}

func (l *groupCheck) add(g *Group, step GroupStep) {
	for _, k := range step.Drop {
		l.drop.Append(dbsqlc.DropPlacesItem{Key: k})
	}
	for _, k := range step.Cancel {
		l.cancel.Append(dbsqlc.CancelMembersItem{
			Key: k, JobID: g.Key.ProcessID, Reason: step.Reason,
		})
	}
	if step.Outcome != "" {
		l.end.Append(dbsqlc.EndGroupsItem{
			Key: g.Key, Outcome: step.Outcome, Failure: string(step.Failure), Detail: step.Detail,
			Kept: step.Kept, TtlUs: step.TTL.Microseconds(),
			Mode: l.store.EventModeOf(g.Key.Namespace),
		})
		return
	}
	takers := cmp.Or(textList(step.Takers), "[]")
	l.takers.Append(dbsqlc.SetTakersItem{Key: g.Key, Takers: takers})
	for _, worker := range step.Open {
		l.open.Append(dbsqlc.OpenPlacesItem{
			Namespace: g.Key.Namespace, JobID: g.Key.ProcessID, WorkerID: worker,
		})
	}
	if len(step.Evict) == 0 {
		l.rest.Append(dbsqlc.RestGroupsItem{Key: g.Key, Mode: l.store.EventModeOf(g.Key.Namespace)})
	}
}

// write stores the decisions.
func (l *groupCheck) write(changes *GroupChanges) error {
	if err := l.q.DropPlaces(l.ctx, l.db, l.drop); err != nil {
		return err
	}
	if err := l.q.SetTakers(l.ctx, l.db, l.takers); err != nil {
		return err
	}
	opened, err := l.q.OpenPlaces(l.ctx, l.db, l.open)
	if err != nil {
		return err
	}
	for _, r := range opened {
		changes.Notified = append(changes.Notified, process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID})
	}
	if err := l.q.CancelMembers(l.ctx, l.db, l.cancel); err != nil {
		return err
	}
	for n, id := range l.cancel.ProcessIds {
		changes.Notified = append(changes.Notified, process.Key{Namespace: l.cancel.Namespaces[n], ProcessID: id})
	}
	if err := l.q.RestGroups(l.ctx, l.db, l.rest); err != nil {
		return err
	}
	ended, err := l.q.EndGroups(l.ctx, l.db, l.end)
	if err != nil || len(ended) == 0 {
		return err
	}
	var notify dbsqlc.NotifyParentsParams
	for _, r := range ended {
		changes.Ended = append(changes.Ended, process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID})
		notify.Append(dbsqlc.NotifyParentsItem{
			Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, TaskID: r.TaskID,
		})
	}
	parents, err := l.q.NotifyParents(l.ctx, l.db, notify)
	for _, r := range parents {
		changes.Notified = append(changes.Notified, process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID})
	}
	return err
}

// ReassignMember is an effect of a failed attempt of a member that has attempts left. The worker
// that has the slot of the member makes the next attempt or, if AnyWorker is set, any allowed
// worker does.
type ReassignMember struct{ AnyWorker bool }

// Bytes implements storage.Effect.
func (ReassignMember) Bytes() int { return 100 }

// Batch implements storage.Effect.
func (ReassignMember) Batch() string { return "ReassignMembers" }

// Write implements storage.Effect.
func (ReassignMember) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.ReassignMembersParams
	for _, r := range all {
		a.Append(dbsqlc.ReassignMembersItem{
			Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken, Leaves: r.Effect.(ReassignMember).AnyWorker,
		})
	}
	return dbsqlc.New().ReassignMembers(ctx, db, a)
}
