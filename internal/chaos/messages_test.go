//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/processor"
)

// The commands at the end of an operation's text. They make the process send a message to another
// process.
const (
	askNotify      = " notify="       // a notification
	askStartEnding = " start-ending=" // the start of a child that ends at once
	askStart       = " start="        // the start of a child that lives until it is cancelled
	askCancel      = " cancel="       // the cancel of a child
)

// Prefixes of operations that are in a chain because another process has sent a message. The cause
// follows the prefix.
const (
	sentBy = "from "
	endOf  = "end of "

	started      = "started"
	startedToEnd = "started to end"
)

// command is a command of a result.
type command struct {
	ask    string // one of the ask constants
	target string
	cause  string // process and operation
}

// commandsOf returns the commands of an operation. The processor sends them, and the check compares
// the chains with them.
func commandsOf(process, op string) []command {
	if _, sent := sender(op); sent {
		return nil // it contains the text of another operation
	}
	var commands []command
	for _, ask := range []string{askNotify, askStartEnding, askStart, askCancel} {
		if _, target, found := strings.Cut(op, ask); found {
			commands = append(commands, command{ask: ask, target: target, cause: process + " " + op})
		}
	}
	return commands
}

func (w command) addTo(result *processor.ResultBuilder) {
	switch w.ask {
	case askNotify:
		result.Notify("", w.target, []byte(sentBy+w.cause))
	case askStartEnding:
		result.StartChild("", w.target, []byte(startedToEnd), []byte(endOf+w.cause))
	case askStart:
		result.StartChild("", w.target, []byte(started), []byte(endOf+w.cause))
	case askCancel:
		result.Cancel("", w.target, "cancelled by its parent")
	}
}

// sender returns the process and the operation that sent a message.
func sender(op string) (cause string, sent bool) {
	for _, prefix := range []string{sentBy, endOf} {
		if cause, sent = strings.CutPrefix(op, prefix); sent {
			return cause, true
		}
	}
	return "", false
}

// isMessage reports whether an operation was caused by a command.
func isMessage(op string) bool {
	_, sent := sender(op)
	return sent || op == started || op == startedToEnd
}

// deliveries counts commands by kind, and parents that were notified of the end of their child.
type deliveries struct{ delivered, started, cancelled, ends int }

// delivered compares the commands of all operations in the chains with the operations that commands
// have caused. Each command must have arrived once, and nothing else may have arrived. A child must
// have ended if and only if its end was expected. cancelled lists the children whose cancel was
// acknowledged to a client. wrong lists the differences.
func delivered(
	histories map[string]*history, statuses map[string]string, cancelled []string,
) (d deliveries, wrong []string) {
	ended := map[string]bool{}
	for _, child := range cancelled {
		ended[child] = true
	}
	want := map[string]int{}
	expect := func(process, op string) { want[process+": "+op]++ }
	for process, h := range histories {
		for _, s := range h.applied {
			for _, w := range commandsOf(process, s.op) {
				switch w.ask {
				case askNotify:
					d.delivered++
					expect(w.target, sentBy+w.cause)
				case askStartEnding:
					d.started++
					d.ends++
					expect(w.target, startedToEnd)
					expect(process, endOf+w.cause)
					if statuses[w.target] != "COMPLETED" {
						wrong = append(wrong,
							fmt.Sprintf("%s, which ends at once, is %s", w.target, statuses[w.target]))
					}
				case askStart:
					d.started++
					expect(w.target, started)
					if statuses[w.target] != "RUNNING" {
						d.ends++
						expect(process, endOf+w.cause)
					}
				case askCancel:
					ended[w.target] = true
				}
			}
		}
	}
	for child := range ended {
		if d.cancelled++; statuses[child] != "CANCELLED" {
			wrong = append(wrong, fmt.Sprintf("%s, whose cancel was acknowledged, is %s", child, statuses[child]))
		}
	}
	for process, h := range histories {
		for _, s := range h.applied {
			if isMessage(s.op) {
				want[process+": "+s.op]--
			}
		}
	}
	for what, n := range want {
		switch {
		case n > 0:
			wrong = append(wrong, fmt.Sprintf("%s was sent but not executed (%d missing)", what, n))
		case n < 0:
			wrong = append(wrong, fmt.Sprintf("%s was executed more often than it was sent (%d too many)", what, -n))
		}
	}
	return d, wrong
}

func childStatuses(t testing.TB, conn *pgx.Conn) map[string]string {
	t.Helper()
	rows, err := conn.Query(t.Context(),
		`SELECT process_id, status::text FROM processes WHERE namespace = $1 AND process_id LIKE 'child-%'`, namespace)
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[string]string{}
	var id, status string
	if _, err = pgx.ForEachRow(rows, []any{&id, &status},
		func() error { statuses[id] = status; return nil }); err != nil {
		t.Fatal(err)
	}
	return statuses
}
