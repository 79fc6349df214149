package output

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// ShowProgress formats the progress of a job or step. It returns "" for nil.
func ShowProgress(p *progressorv1.Progress) string {
	if p == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f %% %s", p.GetPercent(), p.GetSummary()))
}

// ShowFailure formats the reason and the message of a failure.
func ShowFailure(f *progressorv1.Failure) string {
	if f.GetMessage() == "" || f.GetReason() == "" {
		return cmp.Or(f.GetReason(), f.GetMessage())
	}
	return f.GetReason() + ": " + f.GetMessage()
}

// ShowProcessor describes the processor of a namespace. It omits headers, because they may be
// secret.
func ShowProcessor(p *progressorv1.ProcessorConfig) string {
	switch t := p.GetTransport().(type) {
	case *progressorv1.ProcessorConfig_Connect:
		text := strings.Join(append([]string{t.Connect.GetUrl()}, t.Connect.GetMoreUrls()...), " ")
		if e := Enum(t.Connect.GetEncoding()); e != "" {
			text += " " + strings.ToLower(e)
		}
		if pr := Enum(t.Connect.GetProtocol()); pr != "" {
			text += " " + strings.ToLower(pr)
		}
		return OneLine(text)
	case *progressorv1.ProcessorConfig_Builtin:
		return OneLine("builtin " + t.Builtin.GetName())
	case *progressorv1.ProcessorConfig_Pull:
		return "pull"
	}
	return ""
}

// StepName returns the name of a step or an item.
func StepName(id string, index *int32) string {
	if index == nil {
		return id
	}
	return fmt.Sprintf("%s[%d]", id, *index)
}

// SilentAfter is the default of engine.zombie_after: a node without a heartbeat for this long is
// dead.
const SilentAfter = 10 * time.Second

// NodeState returns the state of an engine, from the age of its last heartbeat.
func NodeState(beatAge time.Duration, n *progressorv1.Node) string {
	switch {
	case beatAge > SilentAfter:
		return "silent"
	case n.GetDraining():
		return "draining"
	case n.GetRequestsOnly():
		return "requests only"
	}
	return "alive"
}
