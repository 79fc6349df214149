package flow

import (
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// EffectKind is the kind of an effect.
type EffectKind string

// The kinds of effects. All effects of a decision are written in one transaction.
const (
	EffectBegin              EffectKind = "begin"       // starts the work of a step or item
	EffectEnd                EffectKind = "end"         // sets the final status of a step or item
	EffectCancel             EffectKind = "cancel"      // asks the work of a step or item to end
	EffectCompensate         EffectKind = "undo"        // begins the compensation of a step
	EffectCompensated        EffectKind = "undone"      // records the end of a compensation
	EffectCancelCompensation EffectKind = "cancel undo" // asks the compensation of a step to end
	EffectRunStatus          EffectKind = "change"      // changes the status of the run
	EffectReset              EffectKind = "reset"       // sets a step that has ended to PENDING
	EffectEndSuspended       EffectKind = "suspended"   // ends the SUSPENDED processes of a step that was asked to end
	EffectDropItems          EffectKind = "drop"        // deletes the items of an earlier round, except those in Kept
)

// ReasonStopped is the reason of a step that ends because its run stops. The code that stores the
// reason knows the names of the steps, and adds the cause.
const ReasonStopped = "the run stopped"

// ReasonOverdue is the reason of an EffectCancel for a step or item that exceeded the step's
// timeout.
const ReasonOverdue = "the timeout of its step expired"

// ReasonItemsFailed is the reason of an item that ends because too many items of its step failed.
const ReasonItemsFailed = "too many items of its step failed"

// Effect is one consequence of a decision.
type Effect struct {
	Kind   EffectKind
	Step   int
	Index  int
	Status StepStatus // only for EffectEnd, and for EffectCompensated: Succeeded, Failed or Cancelled
	Reason string
	End    *End        // only for EffectEnd; nil if nothing else is known about the end
	Due    time.Time   // only for EffectBegin
	Work   any         // only for EffectBegin and EffectCompensate: the value that Rules has prepared, or nil
	Was    Mode        // only for EffectRunStatus: the previous mode
	Kept   map[int]int // only for EffectDropItems: maps the old indexes of the items that stay done to their new ones
}

// End contains the known facts about the end of a step or an item.
type End struct {
	Result  []byte // JSON; nil means null
	Failure *progressorv1.Failure
	Err     error  // why the step or item could not begin
	Worker  string // who answered a wait
	Reason  string
}

// Outcome describes how a step, an item or a compensation ended.
type Outcome struct {
	Step, Index int
	Round       int32
	Undo        bool       // the compensation of the step ended
	Status      StepStatus // Succeeded, Failed or Cancelled; Skipped if it was skipped at its due time
	WorkerLost  bool       // its worker was lost and no takeovers are left
	Overdue     bool       // it exceeded the timeout of its step and is asked to end
	Reason      string     // only for a step or an item that the run itself ends, and for a compensation
	End         *End
}

// InputKind is the kind of an input.
type InputKind string

// The kinds of inputs.
const (
	InputStart  InputKind = "start"  // begin the first attempt of a run that no longer waits for its time or its scope
	InputTick   InputKind = "tick"   // handle everything that is due
	InputEnd    InputKind = "end"    // a step, an item or a compensation has ended
	InputCancel InputKind = "cancel" // end the run; the caller checks that this is allowed
	InputAbort  InputKind = "abort"  // end the run at once: ask open steps to end, and do not wait for them
	InputSkip   InputKind = "skip"   // end a step or an item that has not ended, for an operator
	InputRetry  InputKind = "retry"  // restart a run that has ended and did not succeed
)

// Input is something that happens to a run.
type Input struct {
	Kind    InputKind
	Outcome Outcome // only for InputEnd; InputSkip uses Step, Index and End
}
