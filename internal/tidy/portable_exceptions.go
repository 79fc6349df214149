package tidy

// The reasons of exceptions.
const (
	checksResult = "it applies only to results that this transaction has stored: xmin of their rows is this transaction"
	checksRun    = "it must not change a run that the flush has not locked: xmin or xmax of its row is this transaction"
	fastPath     = "it belongs to the fast path, which other databases do not use"
	savesSearch  = "the address of a row that the statement has found saves a search by key"
	orderedByXID = "events of jobs are ordered by the transactions that wrote them"
	examines     = "doctor examines PostgreSQL itself"
	onlyIfThere  = "it does so only if the setting progressor.portable is off"
)

// exceptions contains all statements that use a feature which is not portable. The list only
// becomes shorter: rewrite a statement, then remove it. Never add one.
var exceptions = []exception{
	{rowVersions, fastPath, []string{"CaptureCall"}},
	{transactionIDs, fastPath, []string{"CaptureCall"}},
	{rowAddresses, fastPath, []string{"SaveCompleted", "SaveFinished"}},
	{rowVersions, checksRun, []string{"EndSteps"}},
	{rowVersions, checksResult, resultsChecked},
	{transactionIDs, checksResult, resultsChecked},
	{rowAddresses, savesSearch, []string{"EndSteps", "SaveResult"}},
	{transactionIDs, orderedByXID, []string{
		"EventsFromNow", "FindKindViolations", "IsAhead", "WatchJobEvents", "function job_event_xid",
		"storage/search/events.go eventStatement", "table job_events",
	}},
	{rowVersions, examines, []string{"cmd/progressor/internal/cli/server/doctorchecks.go lookAtXmin"}},
	{advisoryLocks, onlyIfThere, []string{"TakeLane", "function lock_key"}},
	{notifications, onlyIfThere, []string{"function send_notice", "storage/listen.go listenOnce"}},
}

var resultsChecked = []string{
	"CancelScheduled", "DropItems", "EndIfCancelled", "EndJobs", "EndSteps", "FreeKeys", "InsertRuns",
	"InsertTaskAudits", "LeaveScopes", "ReassignMembers", "ReportSteps", "RequeueForKeys", "SendMessages",
	"StartSteps", "UpdateRuns", "WriteFires", "WriteJobEvents", "WriteJobs", "WriteSteps", "WriteUnreached",
}
