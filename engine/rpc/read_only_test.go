package rpc

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	aNamespace = `{"namespace":{"namespace":"n","processor":{"builtin":{"name":"obedient"}},` +
		`"changes":{"kinds":["CHANGE_KIND_EVENT"]}}}`
	aCron = `{"cron":{"namespace":"n","cronId":"%s","spec":{"expressions":["0 0 1 1 *"]},` +
		`"target":{"startProcess":{}}}}`
	aTemplate = `{"template":{"namespace":"n","type":"t","steps":[{"stepId":"a","wait":{}}]}}`
	aSink     = `{"sink":{"namespace":"n","sinkId":"s","webhook":{"url":"http://192.0.2.1/"}}}`
	aProcess  = `{"namespace":"n","processId":"p"}`
	aJob      = `{"namespace":"n","jobId":"j"}`
	theCron   = `{"namespace":"n","cronId":"c"}`
	theSink   = `{"namespace":"n","sinkId":"s"}`
	theRun    = `{"namespace":"n","runId":"r"}`
)

// objects are the objects to which the changes below refer.
var objects = [][2]string{
	{"NamespaceService/PutNamespace", aNamespace},
	{"NamespaceService/PutNamespace", `{"namespace":{"namespace":"w","processor":{"pull":{}}}}`},
	{"ProcessService/Start", aProcess},
	{"JobService/Enqueue", `{"namespace":"w","jobId":"j","name":"x"}`},
	{"CronService/CreateCron", fmt.Sprintf(aCron, "c")},
	{"FlowService/PutTemplate", aTemplate},
	{"FlowService/StartRun", `{"namespace":"n","type":"t","runId":"r"}`},
	{"JobService/PutConstraint", `{"constraint":{"namespace":"n","name":"k","match":"true","maxRunning":1}}`},
	{"ChangeService/PutSink", aSink},
}

// changes contains a request for each method that changes something, except those in notWritten.
var changes = map[string]string{
	"ProcessService/Start":             `{"namespace":"n","processId":"new","idempotencyKey":"a"}`,
	"ProcessService/Call":              aProcess,
	"ProcessService/Repair":            `{"namespace":"n","processId":"p","simple":{}}`,
	"ProcessService/PutProcess":        `{"namespace":"n","processId":"i","status":"PROCESS_STATUS_RUNNING"}`,
	"ProcessService/CancelProcess":     aProcess,
	"ProcessService/SuspendProcess":    aProcess,
	"ProcessService/ResumeProcess":     aProcess,
	"ProcessService/RestartHistory":    aProcess,
	"ProcessService/RemoveProcess":     aProcess,
	"ProcessService/EraseProcess":      `{"namespace":"n","processId":"gone"}`,
	"NamespaceService/PutNamespace":    aNamespace,
	"NamespaceService/PauseNamespace":  `{"namespace":"n"}`,
	"NamespaceService/ResumeNamespace": `{"namespace":"n"}`,
	"NamespaceService/DeleteNamespace": `{"namespace":"n","withData":true}`,
	"InsightService/DrainNode":         `{"nodeId":"1"}`,
	"BulkService/StartBulk":            `{"namespace":"n","filter":"process_id = \"*\"","verb":"BULK_VERB_SUSPEND"}`,
	"CronService/CreateCron":           fmt.Sprintf(aCron, "other"),
	"CronService/UpdateCron":           fmt.Sprintf(aCron, "c"),
	"CronService/DeleteCron":           theCron,
	"CronService/PauseCron":            theCron,
	"CronService/ResumeCron":           theCron,
	"CronService/TriggerCron":          theCron,
	"CronService/StopBackfills":        theCron,
	"JobService/Enqueue":               `{"namespace":"w","name":"x"}`,
	"JobService/EnqueueBatch":          `{"jobs":[{"namespace":"w","name":"x"}]}`,
	"JobService/CancelJob":             `{"namespace":"w","jobId":"j"}`,
	"JobService/RemoveJob":             `{"namespace":"w","jobId":"j"}`,
	"JobService/UpdateJob": `{"namespace":"w","jobId":"j","options":{"priority":1},` +
		`"updateMask":"priority"}`,
	"JobService/PauseJobs":        `{"namespace":"w","name":"x"}`,
	"JobService/ResumeJobs":       `{"namespace":"w","name":"x"}`,
	"JobService/PutConstraint":    objects[7][1],
	"JobService/DeleteConstraint": `{"namespace":"n","name":"k"}`,
	"FlowService/PutTemplate":     strings.Replace(aTemplate, `"a"`, `"b"`, 1),
	"FlowService/DisableTemplate": `{"namespace":"n","type":"t"}`,
	"FlowService/DeleteTemplate":  `{"namespace":"n","type":"t"}`,
	"FlowService/StartRun":        `{"namespace":"n","type":"t"}`,
	"FlowService/CancelRun":       theRun,
	"FlowService/RemoveRun":       theRun,
	"FlowService/SkipStep":        `{"namespace":"n","runId":"r","stepId":"a"}`,
	"ChangeService/PutSink":       aSink,
	"ChangeService/PauseSink":     theSink,
	"ChangeService/ResumeSink":    theSink,
	"ChangeService/DeleteSink":    theSink,
	"ChangeService/RetrySinkDeadLetters": `{"namespace":"n","sinkId":"s",` +
		`"all":true}`,
	"WorkerService/Poll":       `{"namespaces":["w"],"workerId":"a"}`,
	"WorkerService/StopWorker": `{"namespace":"w","workerId":"a"}`,
}

// notWritten are changes that end before their first write. They have nothing to change, lack the
// lease or the token of a task, or need an engine that authenticates its clients (see
// TestAccessReadOnly of package storage).
var notWritten = []string{"AddGrant", "CreateKey", "EndConsoleLogins", "RemoveGrant", "RevokeKey", "RotateKey",
	"BackfillCron", "CancelBulk", "CancelFire", "Checkpoint", "Complete", "CompleteBatch", "CompleteStep",
	"EnableTemplate", "FetchResult", "Heartbeat", "Release", "RepeatRun", "ReportStep", "RerunFire", "RetryJob",
	"RetryRun", "RewindSink"}

// While the database is read-only, like a demoted primary, a change that reaches the database
// returns UNAVAILABLE. No change returns INTERNAL, and no change succeeds. When the database is
// writable again, some of these requests are repeated. They succeed, because the engine closes
// read-only sessions.
func TestReadOnlyDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	path := w.url + "/progressor.v1."
	for _, o := range objects {
		if status, body := post(t, path+o[0], "application/json", o[1]); status != http.StatusOK {
			t.Fatalf("%s: %d %s", o[0], status, body)
		}
	}
	eachMethod(t, func(service, method protoreflect.Descriptor) {
		name := string(service.Name()) + "/" + string(method.Name())
		_, tested := changes[name]
		if !tested && !isRead("/"+name) && !slices.Contains(notWritten, string(method.Name())) {
			t.Errorf("%s is not tested", name)
		}
	})
	w.setReadOnly(t, true)
	unavailable := 0
	for name, request := range changes {
		status, body := post(t, path+name, "application/json", request)
		switch {
		case status == http.StatusServiceUnavailable && strings.Contains(body, "REASON_UNAVAILABLE"):
			unavailable++
		case status == http.StatusOK && name != "WorkerService/Poll", status >= http.StatusInternalServerError:
			t.Errorf("%s: %d %s", name, status, body)
		default: // a read before the first write has rejected it
			t.Logf("%s: %d %s", name, status, body)
		}
	}
	if unavailable < len(changes)*3/4 {
		t.Errorf("%d of %d requests were unavailable", unavailable, len(changes))
	}
	w.setReadOnly(t, false)
	for _, name := range []string{"ProcessService/Call", "NamespaceService/PauseNamespace", "JobService/Enqueue",
		"JobService/EnqueueBatch", "CronService/PauseCron", "WorkerService/Poll"} {
		status, body := post(t, path+name, "application/json", changes[name])
		for range 10 { // a session that began read-only is closed by its first error
			if status == http.StatusServiceUnavailable {
				status, body = post(t, path+name, "application/json", changes[name])
			}
		}
		if status != http.StatusOK {
			t.Errorf("%s after the fault: %d %s", name, status, body)
		}
	}
}

// setReadOnly makes new sessions of the database read-only or writable, and ends the sessions of
// the engine if the database becomes read-only.
func (w *servedEngine) setReadOnly(t *testing.T, on bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var name string
	if err := conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	statements := []string{"SET default_transaction_read_only = off",
		fmt.Sprintf("ALTER DATABASE %q SET default_transaction_read_only = %t", name, on)}
	if on {
		statements = append(statements, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'progressor%'`)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}
