package rpc

import (
	"slices"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// boundedInCode contains the fields of requests whose size is limited in code and not by a rule of
// the proto files, with their limits. docs/limits.md lists these limits.
var boundedInCode = map[string][]protoreflect.FullName{
	"64 KiB of JSON": {
		"StartRequest.metadata", "PutProcessRequest.metadata", "Event.metadata", "NewEvent.metadata", "Result.metadata",
		"StartCommand.metadata", "StartRunCommand.metadata",
		"JobOptions.metadata", "StartRunRequest.metadata", "Cron.metadata", "StartProcessTarget.metadata",
		"StartRunTarget.metadata",
		"ProcessAction.metadata", "CheckpointRequest.metadata", "Progress.summary", "Progress.details",
	},
	"1 MiB of JSON": {
		"EnqueueRequest.args", "UpdateJobRequest.args", "JobResult.result", "Result.job_result", "EnqueueCommand.args",
		"StartRunRequest.payload", "RepeatRunRequest.payload", "StartRunCommand.payload",
		"CompleteStepRequest.result", "SkipStepRequest.result",
	},
	"1 MiB of the message": {"Failure.reason", "Failure.message", "Failure.details", "Rejection.reason",
		"Rejection.message"},
	"4 MiB of the template": {
		"Template.payload_schema", "Template.result", "StepTemplate.input", "WaitAction.result_schema",
		"WaitAction.due_result", "RunAction.payload",
	},
	"256 KiB of JSON for all steps of a run": {"StepInput.input"},
	"256 KiB of the cron": {"EnqueueJobTarget.args", "StartRunTarget.payload_template",
		"HttpTarget.success_codes"},
	"each updatable field once": {"UpdateJobRequest.update_mask"},
	"ignored in requests": {
		"Failure.worker_id", "Failure.node_id", "Cron.next_fire_times", "Cron.fires_by_decision",
		"Cron.running_process_ids", "Cron.backfills",
		"NamespaceDeletion.left", "Sink.status",
	},
}

// TestEveryFieldHasABound checks that each field of a request that can be large has a limit.
func TestEveryFieldHasABound(t *testing.T) {
	t.Parallel()
	known := map[protoreflect.FullName]bool{}
	for _, fields := range boundedInCode {
		for _, name := range fields {
			known["progressor.v1."+name] = false
		}
	}
	seen := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			fd := m.Fields().Get(i)
			if _, ok := known[fd.FullName()]; ok {
				known[fd.FullName()] = true
				continue
			}
			rules, err := protovalidate.ResolveFieldRules(fd)
			if err != nil {
				t.Fatal(err)
			}
			if !boundedField(fd, rules) {
				t.Errorf("%s has no limit: add a rule, or a limit in code and an entry in boundedInCode", fd.FullName())
			}
			if fd.Message() != nil && !fd.IsMap() && fd.Message().ParentFile().Package() == "progressor.v1" {
				walk(fd.Message())
			}
		}
	}
	for _, service := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.(protoreflect.ServiceDescriptor).Methods().Len() {
			walk(d.(protoreflect.ServiceDescriptor).Methods().Get(i).Input())
		}
	}
	for name, met := range known {
		if !met {
			t.Errorf("boundedInCode has %s, which no request contains", name)
		}
	}
}

// boundedField reports whether the rules limit the size of a field and of its elements.
func boundedField(fd protoreflect.FieldDescriptor, rules *validate.FieldRules) bool {
	switch {
	case fd.IsMap():
		m := rules.GetMap()
		return m.GetMaxPairs() > 0 && boundedValue(fd.MapKey(), m.GetKeys()) &&
			boundedValue(fd.MapValue(), m.GetValues())
	case fd.IsList():
		list := rules.GetRepeated()
		distinct := list.GetUnique() && list.GetItems().GetEnum().GetDefinedOnly()
		return distinct || list.GetMaxItems() > 0 && boundedValue(fd, list.GetItems())
	}
	return boundedValue(fd, rules)
}

func boundedValue(fd protoreflect.FieldDescriptor, rules *validate.FieldRules) bool {
	switch fd.Kind() {
	case protoreflect.StringKind:
		s := rules.GetString()
		return s.GetMaxBytes() > 0 || s.GetMaxLen() > 0 || len(s.GetIn()) > 0 ||
			slices.Contains([]string{"^[a-z0-9_]{1,64}$", "^[a-z0-9_.-]{1,128}$"}, s.GetPattern())
	case protoreflect.BytesKind:
		return rules.GetBytes().GetMaxLen() > 0
	case protoreflect.MessageKind:
		return fd.Message().FullName() != structName && fd.Message().FullName() != valueName &&
			fd.Message().FullName() != listName &&
			fd.Message().FullName() != "google.protobuf.FieldMask"
	}
	return true
}
