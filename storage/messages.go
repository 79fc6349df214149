package storage

import (
	"context"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// MessageKind is the effect of a message on its target.
type MessageKind string

// The kinds of messages. NotifyParents sends the ends of children.
const (
	MessageStart    MessageKind = "start"
	MessageNotify   MessageKind = "notify"
	MessageCancel   MessageKind = "cancel"
	MessageChildEnd MessageKind = "child_end"
)

// Message is a message of a result to another process. It is stored with the result, or not at all.
type Message struct {
	Kind             MessageKind
	Target           process.Key
	Args             []byte
	Context          []byte    // carries the trace, or nil
	Metadata         []byte    // only for a start: JSON object, or nil
	StartTime        time.Time // only for a start: zero means now
	NotifyParentArgs []byte    // only for a start: nil if the sender is not notified of the end
	// StartedKind and KindRow are the kind of a started process and the JSON with which its kind
	// starts it. They are only set for kinds that need a row of their own.
	StartedKind string
	KindRow     []byte
	Plain       bool // only with KindRow: the process needs no other rows, so StartSteps can start it
	Reason      string
	Grace       *time.Duration // only for a cancel; nil means process.DefaultCancelGrace
}

func (m *Message) bytes() int {
	return 300 + len(m.Args) + len(m.Context) + len(m.Metadata) + len(m.NotifyParentArgs) + len(m.KindRow) +
		len(m.Reason)
}

// OnMessages sets the function that is called after a commit with the targets of messages that can
// be delivered now. lowPriority is true if all of them belong to completions with LowPriority. The
// function must not block.
func (s *Store) OnMessages(deliver func(targets []process.Key, lowPriority bool)) {
	s.deliver.Store(&deliver)
}

func (s *Store) notifyTargets(targets []process.Key, lowPriority map[process.Key]struct{}) {
	deliver := s.deliver.Load()
	if len(targets) == 0 || deliver == nil {
		return
	}
	slices.SortFunc(targets, process.Key.Compare)
	targets = slices.Compact(targets)
	if len(lowPriority) == 0 {
		(*deliver)(targets, false)
		return
	}
	var now, later []process.Key
	for _, k := range targets {
		if _, waits := lowPriority[k]; waits {
			later = append(later, k)
		} else {
			now = append(now, k)
		}
	}
	(*deliver)(now, false)
	(*deliver)(later, true)
}

// outgoing collects the messages and effects of a flush. A statement is sent only if it has rows,
// so that simple results do not pay for it.
type outgoing struct {
	send          dbsqlc.SendMessagesParams
	notifications dbsqlc.NotifyParentsParams
	release       dbsqlc.ReleaseMessagesParams
	effects       effectBatches
	targets       []process.Key            // targets of messages that the flush has stored or released
	lowPriority   map[process.Key]struct{} // targets of completions with LowPriority
}

// ended notifies the parent of an ended process and releases the messages that are held for the
// process, which are then dropped. taskID is the task with the response, or 0.
func (r *outgoing) ended(key process.Key, taskID int64) {
	r.notifications.Append(dbsqlc.NotifyParentsItem{Key: key, TaskID: taskID})
	r.released(key)
}

// released releases the held messages of a process if its status allows it.
func (r *outgoing) released(key process.Key) {
	r.release.Append(dbsqlc.ReleaseMessagesItem{Key: key})
}

// targets returns the targets of the messages of a completion after a commit whose response was
// lost. The scan finds targets that the database chose: parents, and processes with released
// messages.
func (c *Completion) targets() (targets []process.Key) {
	for i := range c.Messages {
		targets = append(targets, c.Messages[i].Target)
	}
	if c.Advance != nil {
		targets = append(targets, c.Advance.Completion.targets()...)
	}
	return targets
}

// completed adds the messages and effects of a completion. fastPath means that the fast path stores
// the completion. The fast path does not apply if another process awaits the end, except for the
// run of a step, which EndSteps notifies.
func (r *outgoing) completed(c *Completion, fastPath bool) {
	switch {
	case fastPath || c.notifiesRun():
	case c.Outcome == Failed || c.Outcome == Completed || c.Outcome == Cancelled || c.removes():
		r.ended(c.Key, c.TaskID)
	case c.TaskType == process.TaskRepair && c.Outcome == Finished:
		r.released(c.Key)
	case c.Outcome == Retry && len(c.EffectsOnEnd) > 0:
		r.ended(c.Key, 0) // a job that was cancelled before has ended now: see EndIfCancelled
	}
	if fastPath && c.Outcome == Completed && c.freesKeys() {
		r.effects.add(c, others(c.EffectsOnEnd)...) // SaveCompleted frees the keys
	} else {
		r.effects.add(c, c.EffectsOnEnd...)
	}
	if !c.StoresChanges() {
		return
	}
	r.effects.add(c, c.Effects...)
	s := &r.send
	for i := range c.Messages {
		m := &c.Messages[i]
		if c.starts(m) {
			continue
		}
		if c.LowPriority {
			if r.lowPriority == nil {
				r.lowPriority = map[process.Key]struct{}{}
			}
			r.lowPriority[m.Target] = struct{}{}
		}
		grace := int64(-1)
		if m.Grace != nil {
			grace = m.Grace.Microseconds()
		}
		s.Append(dbsqlc.SendMessagesItem{
			Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken, Kind: string(m.Kind),
			Target: m.Target, Args: m.Args, Context: m.Context, Metadata: string(m.Metadata),
			StartTime: m.StartTime, NotifyParentArgs: m.NotifyParentArgs, Reason: m.Reason,
			KindRow: string(m.KindRow), GraceUs: grace,
		})
	}
}

// sendStages returns the statements for effects and messages. They run after the tasks have ended
// and before rows of removed processes are deleted.
func (r *outgoing) sendStages(s *Store) []stage {
	stages := r.effects.stages(s)
	if len(r.send.Namespaces) > 0 {
		stages = append(stages, targeted(r, s.q.SendMessages, r.send))
	}
	return stages
}

// notifyStages returns the statements that notify parents. They run after EndSteps. A late result
// of a job that has ended in the same flush has no response, so an earlier statement would notify
// the run without the response.
func (r *outgoing) notifyStages(s *Store) []stage {
	if len(r.notifications.Namespaces) == 0 {
		return nil
	}
	return []stage{targeted(r, s.q.NotifyParents, r.notifications)}
}

// releaseStages returns the last statements of a flush. They see the changes of all others.
func (r *outgoing) releaseStages(s *Store) []stage {
	if len(r.release.Namespaces) == 0 {
		return nil
	}
	r.release.Lim = queueLimit(len(r.release.Namespaces))
	return []stage{targeted(r, s.q.ReleaseMessages, r.release)}
}

// targeted returns a stage for a statement that returns the targets of messages.
func targeted[Arg any, Row keyRow](r *outgoing, run func(context.Context, DB, Arg) ([]Row, error), arg Arg) stage {
	return func(ctx context.Context, db DB) error {
		rows, err := run(ctx, db, arg)
		r.targets = append(r.targets, keysOf(rows)...)
		return err
	}
}

// SearchMessages returns the targets of undelivered messages, at most limit per namespace. It
// returns messages of SQL functions at once, and messages of processes when they are older than
// age. In each namespace it continues after the target in after, which it updates. more is true if
// the search is not complete in some namespace.
func (s *Store) SearchMessages(
	ctx context.Context, age time.Duration, limit int, after map[string]string,
) (targets []process.Key, more bool, err error) {
	arg := dbsqlc.SearchMessagesParams{AgeUs: age.Microseconds(), Lim: int32(limit)}
	for namespace, processID := range after {
		arg.Append(dbsqlc.SearchMessagesItem{
			Key: process.Key{Namespace: namespace, ProcessID: processID},
		})
	}
	rows, err := s.q.SearchMessages(ctx, s.hot, arg)
	if err != nil {
		return nil, false, mapped("search messages", err)
	}
	clear(after)
	found := map[string]int{}
	for _, r := range rows {
		if found[r.Namespace]++; found[r.Namespace] == limit {
			more = true
		}
		after[r.Namespace] = max(after[r.Namespace], r.ProcessID)
		if r.Due {
			targets = append(targets, process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID})
		}
	}
	for namespace, n := range found {
		if n < limit {
			delete(after, namespace)
		}
	}
	return targets, more, nil
}
