package explain

import (
	"fmt"
	"time"
)

// SinkState is the input for the explanation of a sink. All of it is read at the same time.
type SinkState struct {
	Now         time.Time // by the database's clock
	Namespace   string
	SinkID      string
	State       string    // ACTIVE, PAUSED, FAILING, BROKEN or DISABLED
	Webhook     bool      // the target is a webhook; otherwise it is Kafka
	Delivered   time.Time // last delivery; zero if there was none
	Backlog     Backlog
	Records     bool // the namespace records changes
	Failure     SinkFailure
	Holder      SinkHolder
	Nodes       int // live nodes that could deliver
	DeadLetters DeadLetters
}

// Backlog contains the changes that a sink has not delivered.
type Backlog struct {
	Changes int64
	Oldest  time.Time // when the oldest of them was recorded; zero if there is none
	Breaks  time.Time // when its age exceeds max_lag; zero if there is none
	Lost    bool      // changes were deleted before they were delivered
}

// SinkFailure contains the last error of a sink.
type SinkFailure struct {
	Count int32 // failed deliveries in a row
	Error string
	Time  time.Time // zero if there was none
	Next  time.Time // next attempt; zero if there is none
}

// SinkHolder is the node that has the lease of a sink.
type SinkHolder struct {
	NodeID  int64 // 0 if there is none
	Address string
	Alive   bool      // it sends heartbeats
	Beat    time.Time // its last heartbeat; zero if unknown
	Expires time.Time // end of the lease
}

// DeadLetters contains the changes that the target of a sink rejected permanently.
type DeadLetters struct {
	Count   int64
	Retries int64 // how many of them wait to be delivered again
	Newest  DeadLetter
}

// DeadLetter is a change that the target of a sink rejected permanently.
type DeadLetter struct {
	ChangeID  int64
	ProcessID string
	Error     string
}

// SinkExplanation describes a sink. Detail, Next and Unblock are sentences.
type SinkExplanation struct {
	Detail   string
	Next     string
	NextTime time.Time // zero if unknown
	Unblock  string
}

// Sink returns the explanation of a sink.
func Sink(s SinkState) SinkExplanation {
	var e SinkExplanation
	switch s.State {
	case "PAUSED":
		e.Detail = fmt.Sprintf("Sink %s is paused. %s", s.SinkID, s.waiting())
		e.Next, e.NextTime = "Nothing until it is resumed."+s.limit(), s.Backlog.Breaks
		e.Unblock = "To resume it, run " + s.resume() + "."
	case "FAILING":
		s.failing(&e)
	case "BROKEN":
		s.broken(&e)
	case "DISABLED":
		e.Detail = fmt.Sprintf("The target of sink %s reported %s that it does not accept changes: %s %s", s.SinkID,
			s.at(s.Failure.Time), sentence(s.Failure.Error), s.waiting())
		e.Next = "Nothing until it is resumed. Changes are not kept for it beyond the retention of the namespace."
		e.Unblock = fmt.Sprintf("When the target accepts changes, run %s. %s To delete the sink, run %s.", s.resume(),
			s.change(), s.command("delete", ""))
	default:
		s.active(&e)
	}
	if !s.Records {
		e.Detail += fmt.Sprintf(" Namespace %s records no changes.", s.Namespace)
		e.Unblock += fmt.Sprintf(" To record changes, run progressor namespace get %[1]s -o json | "+
			"progressor namespace put %[1]s -f - --changes event,lifecycle.", word(s.Namespace))
	}
	s.deadLetters(&e)
	return e
}

// active describes a sink that delivers, or will as soon as a node takes it.
func (s SinkState) active(e *SinkExplanation) {
	e.Unblock = "Nothing needs to be done."
	switch holder := s.holder(); {
	case s.Backlog.Lost:
		e.Detail = s.lost() + " " + s.waiting()
		e.Next = "It becomes BROKEN at its next delivery."
		e.Unblock = s.rewind()
	case holder != "":
		e.Detail = holder + " " + s.waiting()
		e.Next, e.NextTime, e.Unblock = s.takeover()
		e.Next += s.limit()
	case s.Backlog.Changes == 0:
		e.Detail = fmt.Sprintf("%s delivers for sink %s, and has delivered all changes", capital(s.node()), s.SinkID)
		if !s.Delivered.IsZero() {
			e.Detail += ", the last ones " + s.at(s.Delivered)
		}
		e.Detail += "."
		e.Next = "It delivers the next change as soon as it is recorded."
	default:
		e.Detail = fmt.Sprintf("%s delivers for sink %s. %s", capital(s.node()), s.SinkID, s.waiting())
		e.Next = "It delivers them now, up to 500 at a time." + s.limit()
		e.Unblock = fmt.Sprintf("If the lag does not shrink, use a faster target. To see the lag, run %s.",
			s.command("get", ""))
		if s.Webhook {
			e.Unblock += " webhook.max_concurrent allows more requests at the same time."
		}
	}
}

// failing describes a sink whose last delivery failed.
func (s SinkState) failing(e *SinkExplanation) {
	e.Detail = fmt.Sprintf("The last delivery of sink %s failed %s: %s %s", s.SinkID, s.at(s.Failure.Time),
		sentence(s.Failure.Error), s.waiting())
	if s.Failure.Count > 1 {
		e.Detail = fmt.Sprintf("The last %d deliveries of sink %s failed, the newest %s: %s %s", s.Failure.Count,
			s.SinkID, s.at(s.Failure.Time), sentence(s.Failure.Error), s.waiting())
	}
	e.NextTime = s.Failure.Next
	switch holder := s.holder(); {
	case holder != "":
		e.Detail += " " + holder
		e.Next, e.NextTime, e.Unblock = s.takeover()
	case s.Failure.Next.After(s.Now):
		e.Next = fmt.Sprintf("%s repeats the delivery %s.", capital(s.node()), s.at(s.Failure.Next))
	default:
		e.Next = capital(s.node()) + " repeats the delivery now."
	}
	e.Next += s.limit()
	if s.Nodes > 0 {
		e.Unblock = fmt.Sprintf("Make the target accept the changes. To repeat the delivery at once, run %s. %s",
			s.resume(), s.change())
	}
	if s.Backlog.Lost {
		e.Detail += " " + s.lost()
		e.Unblock += " " + s.rewind()
	}
}

// broken describes a sink that the engine has given up on.
func (s SinkState) broken(e *SinkExplanation) {
	e.Detail = fmt.Sprintf("The engine gave up on sink %s %s: %s %s", s.SinkID, s.at(s.Failure.Time),
		sentence(s.Failure.Error), s.waiting())
	e.Next = "Nothing until it is resumed. Changes are not kept for it beyond the retention of the namespace."
	skip := fmt.Sprintf("To skip the waiting changes, first run %s.", s.command("rewind", " 0s"))
	if s.Backlog.Lost {
		e.Unblock = fmt.Sprintf("%s Then run %s. %s", s.rewind(), s.resume(), s.change())
		return
	}
	e.Unblock = fmt.Sprintf("To resume it, run %s. The time for max_lag then starts again. %s %s", s.resume(), skip,
		s.change())
}

// deadLetters adds the changes that the target rejected permanently. They do not stop the sink.
func (s SinkState) deadLetters(e *SinkExplanation) {
	if s.DeadLetters.Count == 0 {
		return
	}
	newest := "It"
	if s.DeadLetters.Count == 1 {
		e.Detail += " 1 change became a dead letter."
	} else {
		e.Detail += fmt.Sprintf(" %d changes became dead letters.", s.DeadLetters.Count)
		newest = "The newest"
	}
	if n := s.DeadLetters.Newest; n.ChangeID != 0 {
		e.Detail += sentence(fmt.Sprintf(" %s is change %d of %s: %s", newest, n.ChangeID, n.ProcessID, n.Error))
	}
	switch s.DeadLetters.Retries {
	case 0:
	case 1:
		e.Detail += " 1 dead letter waits to be delivered again."
	default:
		e.Detail += fmt.Sprintf(" %d dead letters wait to be delivered again.", s.DeadLetters.Retries)
	}
	e.Unblock += fmt.Sprintf(" To list the dead letters, run %s.", s.command("get", ""))
	if s.DeadLetters.Retries < s.DeadLetters.Count {
		e.Unblock += fmt.Sprintf(" To deliver them again when the target accepts them, run %s.",
			s.command("retry", " --all"))
	}
}

// waiting describes the changes that were not delivered.
func (s SinkState) waiting() string {
	if s.Backlog.Changes == 0 {
		return "No change waits."
	}
	if s.Backlog.Changes == 1 {
		return fmt.Sprintf("1 change waits. It was recorded %s.", s.at(s.Backlog.Oldest))
	}
	return fmt.Sprintf("%d changes wait. The oldest was recorded %s.", s.Backlog.Changes, s.at(s.Backlog.Oldest))
}

// limit describes when the lag becomes too large. The result is appended to Next.
func (s SinkState) limit() string {
	if s.Backlog.Breaks.IsZero() {
		return ""
	}
	if !s.Backlog.Breaks.After(s.Now) {
		return " The oldest change is older than max_lag: the sink becomes BROKEN within minutes."
	}
	return fmt.Sprintf(" If the oldest change is not delivered by %s, the sink is BROKEN.",
		s.at(s.Backlog.Breaks)[len("at "):])
}

// lost says that changes were deleted.
func (s SinkState) lost() string {
	return fmt.Sprintf("Changes were deleted before sink %s delivered them.", s.SinkID)
}

// holder describes why no node delivers for the sink. It returns "" if a node does.
func (s SinkState) holder() string {
	switch h := s.Holder; {
	case s.Nodes == 0:
		return fmt.Sprintf("No live node can deliver for sink %s.", s.SinkID)
	case h.NodeID == 0:
		return fmt.Sprintf("No node has taken sink %s yet.", s.SinkID)
	case h.Alive && h.Expires.After(s.Now):
		return ""
	case h.Beat.IsZero():
		return fmt.Sprintf("%s, which had taken sink %s, is gone.", capital(s.node()), s.SinkID)
	default:
		return fmt.Sprintf("%s, which has taken sink %s, sent its last heartbeat %s.", capital(s.node()), s.SinkID,
			s.at(h.Beat))
	}
}

// takeover describes how a node takes over a sink for which no node delivers.
func (s SinkState) takeover() (next string, nextTime time.Time, unblock string) {
	switch {
	case s.Nodes == 0:
		return "A node that starts takes over the sink.", time.Time{},
			"Start a node that runs tasks: progressor serve, without --engine.requests-only."
	case s.Holder.Expires.After(s.Now):
		return fmt.Sprintf("Another node takes over the sink %s.", s.at(s.Holder.Expires)), s.Holder.Expires,
			"Nothing needs to be done."
	}
	return "A node takes over the sink within seconds.", time.Time{},
		"Nothing needs to be done. If this does not change, look for \"cannot read the sinks\" in the logs of the " +
			"nodes."
}

func (s SinkState) node() string {
	if s.Holder.Address == "" {
		return fmt.Sprintf("node %d", s.Holder.NodeID)
	}
	return fmt.Sprintf("node %d (%s)", s.Holder.NodeID, s.Holder.Address)
}

func (s SinkState) name() string { return word(s.Namespace) + " " + word(s.SinkID) }

func (s SinkState) command(verb, rest string) string {
	return "progressor sink " + verb + " " + s.name() + rest
}

func (s SinkState) resume() string { return s.command("resume", "") }

// rewind returns a sentence with the command that continues with the oldest change.
func (s SinkState) rewind() string {
	return fmt.Sprintf("To continue with the oldest change that is left, run %s.", s.command("rewind", " 1970-01-01"))
}

// change returns a sentence with the commands that replace the target.
func (s SinkState) change() string {
	what := "webhook.url"
	if !s.Webhook {
		what = "kafka"
	}
	file := word(s.SinkID) + ".json"
	return fmt.Sprintf("To use another target, run %s -o json > %s, change %s, and run progressor sink put %s -f %s.",
		s.command("get", ""), file, what, word(s.Namespace), file)
}

func (s SinkState) at(t time.Time) string { return State{Now: s.Now}.at(t) }
