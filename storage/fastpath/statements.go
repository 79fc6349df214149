package fastpath

import (
	"context"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Captured is a call that CaptureCalls has stored.
type Captured = dbsqlc.CaptureCallRow

// Saved is a result that SaveFinished, SaveEnded or SaveCompleted has stored.
type Saved = dbsqlc.SaveFinishedRow

// CaptureCalls stores calls to different processes, with the arguments of PrepareCall. It returns
// the calls that it has stored.
func CaptureCalls(ctx context.Context, db dbsqlc.DBTX, a *dbsqlc.PrepareCallParams) ([]Captured, error) {
	return dbsqlc.New().CaptureCall(ctx, db, dbsqlc.CaptureCallParams{
		NodeID: a.NodeID, Ords: a.Ords, Namespaces: a.Namespaces, ProcessIds: a.ProcessIds,
		TaskTypes: a.TaskTypes, Args: a.Args, Contexts: a.Contexts, IdempotencyKeys: a.IdempotencyKeys,
		RequestIds: a.RequestIds, Fingerprints: a.Fingerprints, HistoryRanges: a.HistoryRanges,
		Priorities: a.Priorities, StepTimeoutsUs: a.StepTimeoutsUs,
	})
}

// SaveFinished stores results that leave their processes RUNNING, with the arguments of SaveResult.
// It returns the results that it has stored.
func SaveFinished(ctx context.Context, db dbsqlc.DBTX, a *dbsqlc.SaveResultParams) ([]Saved, error) {
	return dbsqlc.New().SaveFinished(ctx, db, dbsqlc.SaveFinishedParams{
		Ords: a.Ords, Namespaces: a.Namespaces, ProcessIds: a.ProcessIds, TaskIds: a.TaskIds,
		FencingTokens: a.FencingTokens, AuxStates: a.AuxStates, Metadatas: a.Metadatas,
		EventCounts: a.EventCounts, Responses: a.Responses, EventOrds: a.EventOrds,
		EventNamespaces: a.EventNamespaces, EventProcessIds: a.EventProcessIds, EventIds: a.EventIds,
		EventTaskIds: a.EventTaskIds, EventAttempts: a.EventAttempts, EventTimestamps: a.EventTimestamps,
		EventMetadatas: a.EventMetadatas, EventPayloads: a.EventPayloads,
	})
}

// Continued is a result that SaveContinued has stored, with the next task.
type Continued = dbsqlc.SaveContinuedRow

// SaveContinued stores results whose processes continue with a timer that is due now, with the
// arguments of SaveResult. It returns the results that it has stored.
func SaveContinued(
	ctx context.Context, db dbsqlc.DBTX, a *dbsqlc.SaveResultParams,
) ([]Continued, error) {
	return dbsqlc.New().SaveContinued(ctx, db, dbsqlc.SaveContinuedParams{
		NodeID: a.NodeID, Ords: a.Ords, Namespaces: a.Namespaces, ProcessIds: a.ProcessIds,
		TaskIds: a.TaskIds, FencingTokens: a.FencingTokens, AuxStates: a.AuxStates,
		Metadatas: a.Metadatas, EventCounts: a.EventCounts, Responses: a.Responses,
		WorkerIds: a.WorkerIds, TimerTypes: a.TimerTypes, StepTimeoutsUs: a.StepTimeoutsUs,
		EventOrds: a.EventOrds, EventNamespaces: a.EventNamespaces, EventProcessIds: a.EventProcessIds,
		EventIds: a.EventIds, EventTaskIds: a.EventTaskIds, EventAttempts: a.EventAttempts,
		EventTimestamps: a.EventTimestamps, EventMetadatas: a.EventMetadatas,
		EventPayloads: a.EventPayloads,
	})
}

// SaveEnded stores results that complete processes which are not jobs and hold no keys, with the
// arguments of SaveResult. awaited is true for each result of which EndSteps notifies a run.
// SaveEnded returns the results that it has stored.
func SaveEnded(
	ctx context.Context, db dbsqlc.DBTX, a *dbsqlc.SaveResultParams, awaited []bool,
) ([]Saved, error) {
	rows, err := dbsqlc.New().SaveEnded(ctx, db, dbsqlc.SaveEndedParams{
		Ords: a.Ords, Namespaces: a.Namespaces, ProcessIds: a.ProcessIds, TaskIds: a.TaskIds,
		FencingTokens: a.FencingTokens, AuxStates: a.AuxStates, Metadatas: a.Metadatas,
		EventCounts: a.EventCounts, Responses: a.Responses, WorkerIds: a.WorkerIds, Awaiteds: awaited,
		EventOrds: a.EventOrds, EventNamespaces: a.EventNamespaces, EventProcessIds: a.EventProcessIds,
		EventIds: a.EventIds, EventTaskIds: a.EventTaskIds, EventAttempts: a.EventAttempts,
		EventTimestamps: a.EventTimestamps, EventMetadatas: a.EventMetadatas,
		EventPayloads: a.EventPayloads,
	})
	return savedOf(rows), err
}

// Ends has the arguments of SaveCompleted that SaveResult does not have.
type Ends struct {
	Names   []string // name of the Record of the attempt, or ""
	Awaited []bool   // EndSteps notifies a run of the end
	Frees   []bool   // the end frees the keys of the process
	Modes   []int32  // event modes of the namespaces
}

// SaveCompleted stores results that complete their processes, with the arguments of SaveResult. It
// returns the results that it has stored.
func SaveCompleted(
	ctx context.Context, db dbsqlc.DBTX, a *dbsqlc.SaveResultParams, e Ends,
) ([]Saved, error) {
	rows, err := dbsqlc.New().SaveCompleted(ctx, db, dbsqlc.SaveCompletedParams{
		Ords: a.Ords, Namespaces: a.Namespaces, ProcessIds: a.ProcessIds, TaskIds: a.TaskIds,
		FencingTokens: a.FencingTokens, AuxStates: a.AuxStates, Metadatas: a.Metadatas,
		EventCounts: a.EventCounts, Responses: a.Responses, Names: e.Names, WorkerIds: a.WorkerIds,
		Modes: e.Modes, Awaiteds: e.Awaited, Frees: e.Frees, EventOrds: a.EventOrds,
		EventNamespaces: a.EventNamespaces, EventProcessIds: a.EventProcessIds, EventIds: a.EventIds,
		EventTaskIds: a.EventTaskIds, EventAttempts: a.EventAttempts, EventTimestamps: a.EventTimestamps,
		EventMetadatas: a.EventMetadatas, EventPayloads: a.EventPayloads,
	})
	return savedOf(rows), err
}

func savedOf[R dbsqlc.SaveEndedRow | dbsqlc.SaveCompletedRow](rows []R) []Saved {
	saved := make([]Saved, len(rows))
	for n, row := range rows {
		saved[n] = Saved(row)
	}
	return saved
}
