package engine_test

import (
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Without NOTIFY and advisory locks, nodes poll for three things: messages of SQL functions, tasks
// that a node with requests_only has accepted, and, on that node, the responses of these tasks.
func TestPortable(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t, storagetest.Portable())
	n := start(t, dsn, byTask{notifyTask: noted})
	n.started(t, "p")
	rows := openDB(t, dsn)
	storagetest.Exec(t, rows, "SELECT progressor.notify('ns', 'p', ' sql')")
	eventually(t, "the message is delivered", func() bool { return n.state(t, "p") == "start sql" })
	front := start(t, dsn, fails(t), brief, requestsOnly)
	front.called(t, "p", " call")
}
