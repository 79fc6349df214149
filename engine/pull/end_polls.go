package pull

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/progressor-engine/progressor/storage/pull"
)

// pollChannel is the NOTIFY channel for the workers whose polls must end.
const pollChannel = "progressor_polls"

// activePoll is a call of Poll, from its beginning to its end.
type activePoll struct {
	worker pull.WorkerOf
	ended  chan struct{} // closed when its worker stops; guarded by pulls.mu
}

// isEnded reports whether the worker is stopping, so that the poll must lease no more tasks.
func (p *activePoll) isEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// begin adds a poll of a worker of the caller.
func (p *pulls) begin(ctx context.Context, workerID string) *activePoll {
	poll := &activePoll{pull.WorkerOf{Owner: callerOf(ctx).Owner, WorkerID: workerID}, make(chan struct{})}
	p.mu.Lock()
	p.active[poll] = struct{}{}
	p.mu.Unlock()
	return poll
}

func (p *pulls) finish(poll *activePoll) {
	p.mu.Lock()
	delete(p.active, poll)
	p.mu.Unlock()
}

// endPolls ends the polls of a worker on this node.
func (p *pulls) endPolls(worker pull.WorkerOf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for poll := range p.active {
		if poll.worker == worker && !poll.isEnded() {
			close(poll.ended)
		}
	}
}

// EndPolls ends the polls of a worker of the caller that is stopping. On this node, the polls that
// have begun lease no more tasks when EndPolls returns. Other nodes end theirs when they receive a
// NOTIFY. If none arrives, the worker closes the connections of its polls.
func (s *Server) EndPolls(ctx context.Context, workerID string) {
	worker := pull.WorkerOf{Owner: callerOf(ctx).Owner, WorkerID: workerID}
	s.pulls.endPolls(worker)
	limit, cancel := scanContext(ctx)
	defer cancel()
	err := s.store.SendNotices(limit, pollChannel, []string{s.pollNotice(worker)})
	if err != nil {
		s.log.WarnContext(ctx, "cannot notify other nodes that a worker stops", "worker_id", workerID, "error", err)
	}
}

// pollNotice returns the payload of a NOTIFY from this node.
func (s *Server) pollNotice(worker pull.WorkerOf) string {
	payload, _ := json.Marshal([]string{s.nodeID(), worker.Owner, worker.WorkerID}) // strings are always encodable
	return string(payload)
}

func (s *Server) nodeID() string { return strconv.FormatInt(s.store.NodeID(), 10) }

// Hears implements engine.Workers.
func (s *Server) Hears() map[string]func(payload string) {
	return map[string]func(string){pollChannel: s.onPollNotice, resultChannel: s.pending.wake}
}

// onPollNotice ends the polls of the worker in a notice of another node. It ignores notices of this
// node, which ended its own polls before it sent the notice. Since then, another worker with the
// same ID may have begun a poll.
func (s *Server) onPollNotice(payload string) {
	var notice []string // sender, owner, worker ID
	if json.Unmarshal([]byte(payload), &notice) != nil || len(notice) != 3 {
		return // "", after a loss of the connection, or a notice of another version
	}
	if notice[0] != s.nodeID() {
		s.pulls.endPolls(pull.WorkerOf{Owner: notice[1], WorkerID: notice[2]})
	}
}
