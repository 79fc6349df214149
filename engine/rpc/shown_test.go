package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// notPayloads are fields of responses with arbitrary content that are not hidden from any client of
// the method: searchable metadata, and the definitions of templates.
var notPayloads = []string{"Process.metadata", "Event.metadata", "JobOptions.metadata", "Cron.metadata",
	"StartProcessTarget.metadata", "StartRunTarget.metadata", "Run.metadata", "Template.", "StepTemplate.",
	"ProcessAction.", "WaitAction.", "RunAction.", "OpenWait.result_schema", "AuditEntry.details", "Change."}

// Every field of a response with arbitrary content is hidden without payload.read, or is listed in
// notPayloads. Workers get the payloads of their tasks.
func TestPayloadsAreHidden(t *testing.T) {
	t.Parallel()
	a, hidden := newRules(t), 0
	eachMethod(t, func(service, method protoreflect.Descriptor) {
		rule := a.rules["/"+string(service.FullName())+"/"+string(method.Name())]
		switch rule.needs.GetPermission() {
		case progressorv1.Permission_PERMISSION_JOB_WORK, progressorv1.Permission_PERMISSION_PAYLOAD_READ:
			return
		default:
		}
		eachField(method.(protoreflect.MethodDescriptor).Output(), nil, func(path fieldPath) {
			fd := path[len(path)-1]
			content := fd.Kind() == protoreflect.BytesKind ||
				fd.Message() != nil && (fd.Message().FullName() == structName || fd.Message().FullName() == valueName)
			if !content || fd.IsMap() {
				return
			}
			for _, outer := range path {
				if proto.GetExtension(outer.Options(), progressorv1.E_ShownWith).(progressorv1.Permission) != 0 {
					hidden++
					return
				}
			}
			name := strings.TrimPrefix(string(fd.FullName()), "progressor.v1.")
			for _, known := range notPayloads {
				if strings.HasPrefix(name, known) {
					return
				}
			}
			t.Errorf("%s shows %s (%s)", method.Name(), path, name)
		})
	})
	if hidden < 50 {
		t.Errorf("only %d fields are hidden", hidden)
	}
}

func TestHiddenPayloads(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	response := &progressorv1.GetProcessResponse{Process: &progressorv1.Process{
		Namespace: "own", ProcessId: "p", AuxState: []byte("secret"),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"tenant": structpb.NewStringValue("t")}},
		History:  []*progressorv1.Event{{EventId: 1, Payload: []byte("secret")}},
	}}
	stored := proto.Clone(response)
	for role, want := range map[string]bool{"support": false, "viewer": true, "admin": true, "root": true} {
		granted, err := a.decide(roleOf(role), "/progressor.v1.ProcessService/GetProcess",
			&progressorv1.GetProcessRequest{Namespace: "own", ProcessId: "p"})
		if err != nil {
			t.Fatal(err)
		}
		got := granted.shown(response).(*progressorv1.GetProcessResponse).GetProcess()
		if shown := len(got.GetAuxState()) > 0; shown != want || shown != (len(got.GetHistory()[0].GetPayload()) > 0) {
			t.Errorf("%s sees %v", role, got)
		}
		if got.GetProcessId() != "p" || got.GetHistory()[0].GetEventId() != 1 || got.GetMetadata() == nil {
			t.Errorf("%s cannot see %v", role, got)
		}
	}
	if !proto.Equal(response, stored) {
		t.Errorf("the response of the engine was changed: %v", response)
	}
}

// The processes of crons contain the headers of HTTP targets, and the processes of runs contain the
// tokens of waits. A client that may not see headers or tokens does not see the states, events and
// tasks of these processes.
func TestHiddenInProcessesOfTheEngine(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	const service = "/progressor.v1.ProcessService/"
	for id, want := range map[string]string{
		"p": "viewer client author admin root", "~job/run/step": "viewer client author admin root",
		"~cron/c": "author admin root", "~run/c/1": "author admin root", "~flow/r": "client author admin root",
	} {
		events := []*progressorv1.Event{{EventId: 1, Payload: []byte("secret")}}
		process := &progressorv1.Process{Namespace: "own", ProcessId: id, AuxState: []byte("secret"), History: events}
		task := &progressorv1.Task{Namespace: "own", ProcessId: id, Args: []byte("secret"), Response: []byte("secret")}
		for method, messages := range map[string][2]proto.Message{
			"GetProcess": {&progressorv1.GetProcessRequest{Namespace: "own", ProcessId: id},
				&progressorv1.GetProcessResponse{Process: process}},
			"ListProcesses": {&progressorv1.ListProcessesRequest{Namespace: "own"},
				&progressorv1.ListProcessesResponse{Processes: []*progressorv1.Process{process}}},
			"TraceProcess": {&progressorv1.TraceProcessRequest{Namespace: "own", ProcessId: id},
				&progressorv1.TraceProcessResponse{Tasks: []*progressorv1.Task{task}}},
			"WatchProcess": {&progressorv1.WatchProcessRequest{Namespace: "own", ProcessId: id},
				&progressorv1.WatchProcessResponse{Update: &progressorv1.WatchProcessResponse_Event{Event: events[0]}}},
		} {
			for _, role := range []string{"viewer", "support", "client", "author", "admin", "root"} {
				granted, err := a.decide(roleOf(role), service+method, messages[0])
				if err != nil {
					t.Fatal(err)
				}
				got := granted.shown(messages[1]).(proto.Message)
				if shown := proto.Equal(got, messages[1]); shown != slices.Contains(strings.Fields(want), role) {
					t.Errorf("%s of %s as %s: %s", method, id, role, got)
				}
			}
		}
	}
}

// The journal of a function consists of payloads. ExplainProcess reads it only for those who see
// payloads.
func TestExplainShowsPayloads(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]bool{"": true, "support": false, "viewer": true, "client": true} {
		ctx := t.Context()
		if role != "" {
			ctx = context.WithValue(ctx, principalKey{}, roleOf(role))
		}
		if got := showsPayloads(ctx, process.Key{Namespace: "own", ProcessID: "p"}); got != want {
			t.Errorf("%q sees payloads: %t", role, got)
		}
	}
}

// In a list over all namespaces, the namespace of each item determines which of its fields are
// shown.
func TestHiddenInLists(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	p := auth.NewPrincipal("key:a", []auth.Grant{{Role: "viewer", Namespaces: "*"}, {Role: "admin", Namespaces: "own"}})
	granted, err := a.decide(p, "/progressor.v1.NamespaceService/ListNamespaces", &progressorv1.ListNamespacesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) *progressorv1.Namespace {
		return &progressorv1.Namespace{Namespace: name, Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Connect{Connect: &progressorv1.ConnectProcessor{
				Url: "http://x", Headers: map[string]string{"Authorization": "secret"}}}}}
	}
	list := granted.shown(&progressorv1.ListNamespacesResponse{
		Namespaces: []*progressorv1.Namespace{of("other"), of("own")},
	}).(*progressorv1.ListNamespacesResponse).GetNamespaces()
	for _, ns := range list {
		c := ns.GetProcessor().GetConnect()
		if shown := len(c.GetHeaders()) > 0; shown != (ns.GetNamespace() == "own") || c.GetUrl() == "" {
			t.Errorf("%s: %v", ns.GetNamespace(), c)
		}
	}
	response := connect.NewResponse(&progressorv1.ListNamespacesResponse{})
	if got := (shownResponse{response, list[0]}).Any(); got != any(list[0]) {
		t.Errorf("the response has the message %v", got)
	}
}
