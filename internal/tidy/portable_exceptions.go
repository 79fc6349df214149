package tidy

// The reasons for exceptions.
const (
	fastPath      = "it belongs to the fast path, which other databases do not use"
	savesSearch   = "the address of a row that the statement has found saves three searches by key"
	olderEngines  = "clients may have cursors of older engines, which contain transaction IDs"
	checksServer  = "doctor examines PostgreSQL itself"
	notIfPortable = "it does so only if the setting progressor.portable is off"
)

// exceptions contains all statements that use features that are not portable. The list only becomes
// shorter: rewrite a statement, then remove it. Never add one.
var exceptions = []exception{
	{rowVersions, fastPath, []string{"CaptureCall"}},
	{transactionIDs, fastPath, []string{"CaptureCall"}},
	{rowAddresses, fastPath, []string{"SaveCompleted", "SaveContinued", "SaveEnded", "SaveFinished"}},
	{rowAddresses, savesSearch, []string{"SaveResult"}},
	{transactionIDs, olderEngines, []string{"TranslateEventCursor", "function job_event_xid", "table job_events"}},
	{rowVersions, checksServer, []string{"cmd/progressor/internal/cli/server/doctorchecks.go checkXmin"}},
	{advisoryLocks, notIfPortable, []string{"TakeLane", "function lock_key"}},
	{notifications, notIfPortable, []string{"function send_notice", "storage/listen.go listenOnce"}},
}
