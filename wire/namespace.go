package wire

import (
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// NamespaceConfig returns the part of a namespace that its configuration contains.
func NamespaceConfig(m *progressorv1.Namespace) *progressorv1.Namespace {
	return &progressorv1.Namespace{
		Processor: m.GetProcessor(), RetryPolicy: m.GetRetryPolicy(), StepTimeout: m.GetStepTimeout(),
		MaxRunning: m.GetMaxRunning(), MaxWaiting: m.GetMaxWaiting(), MaxBacklog: m.GetMaxBacklog(),
		ZombiePolicy: m.GetZombiePolicy(), HistoryMode: m.GetHistoryMode(), JobEvents: m.GetJobEvents(),
		Retention: m.GetRetention(), FailedRetention: m.GetFailedRetention(),
		CancelledRetention: m.GetCancelledRetention(), FairnessKey: m.GetFairnessKey(), Changes: m.GetChanges(),
		CommandNamespaces: m.GetCommandNamespaces(),
	}
}

// EventMode returns which events of its jobs and runs a namespace keeps.
func EventMode(m *progressorv1.Namespace) storage.EventMode {
	switch m.GetJobEvents() {
	case progressorv1.JobEvents_JOB_EVENTS_ENDS:
		return storage.EventsEnds
	case progressorv1.JobEvents_JOB_EVENTS_NONE:
		return storage.EventsNone
	}
	return storage.EventsAll
}

// CheckChanges validates the setting changes of a namespace.
func CheckChanges(m *progressorv1.Namespace) error {
	for _, kind := range m.GetChanges().GetKinds() {
		switch kind {
		case progressorv1.ChangeKind_CHANGE_KIND_JOB, progressorv1.ChangeKind_CHANGE_KIND_STEP,
			progressorv1.ChangeKind_CHANGE_KIND_RUN:
			if m.GetJobEvents() == progressorv1.JobEvents_JOB_EVENTS_NONE {
				return &process.InvalidError{Field: "namespace.changes.kinds", Message: "JOB, STEP and RUN record " +
					"the events of jobs and runs, but job_events is NONE: set it to ALL or ENDS"}
			}
		default:
		}
	}
	return nil
}
