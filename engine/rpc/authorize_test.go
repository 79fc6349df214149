package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// neededBy contains the methods by the permission that they need. A change of this map changes what
// roles may do.
var neededBy = map[string]string{
	"process.read NAMESPACE": "AwaitTask GetProcess ListProcesses TraceProcess WatchProcess ExplainProcess GetBulk " +
		"GetCron ListCrons ListFires GetTemplate ListTemplates GetRun ListRuns ListSteps ListJobEvents " +
		"WatchJobEvents GetJob ListJobs GetWorker",
	"process.read VISIBLE":                      "CountProcesses ListErrors ListBulks ListOpenWaits ListNextCrons",
	"process.read NAMED":                        "PreviewCron",
	"payload.read NAMESPACE":                    "FetchResult WatchChanges",
	"process.call NAMESPACE":                    "Start Call StartRun",
	"process.call or process.operate NAMESPACE": "CancelProcess CancelRun RepeatRun",
	"process.operate NAMESPACE": "Repair SuspendProcess ResumeProcess RestartHistory RemoveProcess StartBulk " +
		"CancelBulk RetryRun RemoveRun SkipStep RetryJob RemoveJob PauseJobs ResumeJobs StopWorker",
	"job.enqueue NAMESPACE":                    "Enqueue EnqueueBatch",
	"job.enqueue or process.operate NAMESPACE": "UpdateJob CancelJob",
	"job.work NAMESPACE":                       "Poll",
	"job.work NAMED":                           "Heartbeat Checkpoint Complete CompleteBatch Release",
	"cron.write NAMESPACE":                     "CreateCron UpdateCron DeleteCron BackfillCron",
	"cron.write or process.operate NAMESPACE":  "PauseCron ResumeCron TriggerCron CancelFire RerunFire StopBackfills",
	"flow.write NAMESPACE":                     "PutTemplate EnableTemplate DisableTemplate DeleteTemplate",
	"wait.answer NAMESPACE":                    "CompleteStep ReportStep",
	"namespace.read NAMESPACE": "GetNamespace GetSink ExplainSink GetQueueStats ListPausedJobs " +
		"ListConstraints ListWorkers",
	"namespace.read VISIBLE": "ListNamespaces GetNamespaceHealth GetOverview ListSinks",
	"namespace.read ENGINE":  "ListNodes",
	"namespace.write NAMESPACE": "PutNamespace DeleteNamespace PauseNamespace ResumeNamespace PutProcess " +
		"EraseProcess PutConstraint DeleteConstraint PutSink PauseSink ResumeSink RewindSink " +
		"RetrySinkDeadLetters DeleteSink",
	"node.operate ENGINE": "DrainNode",
	"audit.read VISIBLE":  "ListAudit",
	"auth.admin ENGINE": "CreateKey ListKeys RotateKey RevokeKey AddGrant ListGrants RemoveGrant ListConsoleLogins " +
		"EndConsoleLogins",
}

// newRules returns the authorization of all services.
func newRules(t *testing.T) *authorization {
	t.Helper()
	a, err := newAuthorization(auth.New(&oneKey{}, "", nil), services...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// needsText returns the permission that a method needs, in the form of neededBy.
func needsText(n *progressorv1.Needs) string {
	text := auth.PermissionName(n.GetPermission())
	if n.GetOr() != 0 {
		text += " or " + auth.PermissionName(n.GetOr())
	}
	return text + " " + strings.TrimPrefix(n.GetScope().String(), "SCOPE_")
}

func TestNeedsOfMethods(t *testing.T) {
	t.Parallel()
	a, listed := newRules(t), 0
	for _, names := range neededBy {
		listed += len(strings.Fields(names))
	}
	if listed != len(a.rules) {
		t.Errorf("%d methods are listed, %d have rules", listed, len(a.rules))
	}
	for _, rule := range a.rules {
		if got := needsText(rule.needs); !slices.Contains(strings.Fields(neededBy[got]), rule.method) {
			t.Errorf("%s needs %s", rule.method, got)
		}
	}
}

// TestEveryNamespaceIsChecked sets each field of a request in which a client can name a namespace,
// directly or in a lease token. The request is allowed for a namespace of the client, and denied
// for a foreign namespace.
func TestEveryNamespaceIsChecked(t *testing.T) {
	t.Parallel()
	a, checked := newRules(t), 0
	admin := auth.NewPrincipal("key:a", []auth.Grant{{Role: "admin", Namespaces: "own"}})
	eachMethod(t, func(service, method protoreflect.Descriptor) {
		procedure := "/" + string(service.FullName()) + "/" + string(method.Name())
		input := method.(protoreflect.MethodDescriptor).Input()
		eachField(input, nil, func(path fieldPath) {
			fd := path[len(path)-1]
			name, text := string(fd.Name()), func(namespace string) string { return namespace }
			switch {
			case fd.Kind() != protoreflect.StringKind:
				return
			case strings.Contains(name, "lease"):
				text = leaseIn
			case !strings.Contains(name, "namespace"):
				return
			}
			checked++
			for namespace, want := range map[string]bool{"own": true, "foreign": false, "own/x": false} {
				m := dynamicpb.NewMessage(input)
				path.set(t, m, text(namespace))
				if _, err := a.decide(admin, procedure, m); (err == nil) != want {
					t.Errorf("%s: %s in namespace %s: %v", method.Name(), path, namespace, err)
				}
			}
		})
	})
	if checked < 110 {
		t.Errorf("only %d fields were checked", checked)
	}
}

// An empty namespace means the namespace of the request only in fields with the option
// target_needs. It means all namespaces only for methods with the scope VISIBLE.
func TestEmptyNamespaces(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	eachMethod(t, func(service, method protoreflect.Descriptor) {
		rule := a.rules["/"+string(service.FullName())+"/"+string(method.Name())]
		required := 0
		eachField(method.(protoreflect.MethodDescriptor).Input(), nil, func(path fieldPath) {
			fd := path[len(path)-1]
			is, lease := namesNamespace(fd)
			if !is || lease {
				return
			}
			rules, err := protovalidate.ResolveFieldRules(fd)
			if err != nil {
				t.Fatal(err)
			}
			optional := rules.GetIgnore() == validate.Ignore_IGNORE_IF_ZERO_VALUE
			target := proto.GetExtension(fd.Options(), progressorv1.E_TargetNeeds).(progressorv1.Permission)
			switch {
			case fd.IsList() && target != 0: // an empty list has no targets
			case optional != (target != 0 || rule.needs.GetScope() == progressorv1.Scope_SCOPE_VISIBLE):
				t.Errorf("%s: %s may be empty: %v", rule.method, path, optional)
			case !optional:
				required++
			}
		})
		if needed := rule.needs.GetScope() == progressorv1.Scope_SCOPE_NAMESPACE; needed && required == 0 {
			t.Errorf("%s names no namespace", rule.method)
		}
	})
}

// roleOf returns a principal with a role in the namespace own, or everywhere for root.
func roleOf(role string) *auth.Principal {
	where := "own"
	if role == auth.RoleRoot {
		where = auth.Everywhere
	}
	return auth.NewPrincipal("key:"+role, []auth.Grant{{Role: role, Namespaces: where}})
}

// mayUse reports whether a role has one of the permissions in n in the namespace own.
func mayUse(role string, n *progressorv1.Needs) bool {
	p := roleOf(role)
	return p.Can(n.GetPermission(), "own") || n.GetOr() != 0 && p.Can(n.GetOr(), "own")
}

// roleKeys is a table with a key for each role.
type roleKeys map[string]storage.KeyState

func (k roleKeys) ReadGrants(context.Context, []string) (storage.PrincipalGrants, error) {
	return storage.PrincipalGrants{}, nil
}

func (k roleKeys) NoteKeyUse(context.Context, string) error { return nil }

func (k roleKeys) ReadKey(_ context.Context, id string) (storage.KeyState, error) {
	row, ok := k[id]
	if !ok {
		return row, process.ErrKeyNotFound
	}
	return row, nil
}

// TestEveryMethodAsEveryRole calls every method with every role, in the role's namespace and in
// another one. A request is denied if and only if the role does not allow it.
func TestEveryMethodAsEveryRole(t *testing.T) {
	t.Parallel()
	keys, tokens := roleKeys{}, map[string]string{}
	for _, role := range append(auth.Roles(), "none") {
		id, token := auth.NewToken()
		hash := auth.Hash(token)
		keys[id], tokens[role] = storage.KeyState{SecretHash: hash[:]}, token
		if role != "none" {
			where := strings.Split(roleOf(role).Grants()[0], " ")[1]
			keys[id] = storage.KeyState{SecretHash: hash[:], Roles: []string{role}, Patterns: []string{where}}
		}
	}
	h, err := newHandler(Config{Streams: &streams.Streams{}, Auth: auth.New(keys, "", nil)}, scripted(echo()),
		func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	url, a := listen(t, h), newRules(t)
	eachMethod(t, func(service, d protoreflect.Descriptor) {
		method := d.(protoreflect.MethodDescriptor)
		procedure := "/" + string(service.FullName()) + "/" + string(method.Name())
		needs := a.rules[procedure].needs
		for _, namespace := range []string{"own", "other"} {
			request := newRequest(t, method.Input(), namespace)
			for role, token := range tokens {
				want := role == auth.RoleRoot || role != "none" && namespace == "own" && mayUse(role, needs) &&
					needs.GetScope() != progressorv1.Scope_SCOPE_ENGINE
				if method.Name() == "ListNamespaces" { // its request names no namespace
					want = role != "none" && mayUse(role, needs)
				}
				got := posted(t, url+procedure, token, method.IsStreamingServer(), request)
				denied := strings.Contains(got, `"code":"permission_denied"`)
				if denied == want || strings.Contains(got, "invalid_argument") || strings.Contains(got, "unauth") {
					t.Errorf("%s as %s in %s: %.300s", method.Name(), role, namespace, got)
				}
			}
		}
	})
}

// In a list over all namespaces, a client without a grant for all namespaces sees only its own.
func TestVisible(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	const procedure = "/progressor.v1.InsightService/ListErrors"
	for _, c := range []struct {
		grants []auth.Grant
		want   process.Patterns
		denied bool
	}{
		{grants: []auth.Grant{{Role: "viewer", Namespaces: "*"}}},
		{grants: []auth.Grant{{Role: "viewer", Namespaces: "shop/*"}, {Role: "client", Namespaces: "a"},
			{Role: "worker", Namespaces: "*"}}, want: process.Patterns{"shop/*", "a"}},
		{grants: []auth.Grant{{Role: "worker", Namespaces: "*"}}, denied: true},
		{denied: true},
	} {
		p := auth.NewPrincipal("key:a", c.grants)
		got, err := a.decide(p, procedure, &progressorv1.ListErrorsRequest{})
		if (err != nil) != c.denied || !slices.Equal(got.visible, c.want) {
			t.Errorf("%v: %q, %v", c.grants, got.visible, err)
		}
	}
}

// A target in another namespace needs a permission there. In the namespace of the request itself,
// only a worker that is limited to some jobs needs the permission.
func TestTargets(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	worker := auth.NewPrincipal("key:a", []auth.Grant{{Role: "worker", Namespaces: "own"}})
	both := auth.NewPrincipal("key:b", []auth.Grant{
		{Role: "worker", Namespaces: "own"}, {Role: "client", Namespaces: "other"}})
	elsewhere := auth.NewPrincipal("key:e", []auth.Grant{{Role: "worker", Namespaces: "*"}})
	limited := auth.NewPrincipal("key:c", []auth.Grant{{Role: "worker:resize", Namespaces: "own"}})
	trusted := auth.NewPrincipal("key:d", []auth.Grant{
		{Role: "worker:resize", Namespaces: "own"}, {Role: "client", Namespaces: "own"}})
	complete := func(command *progressorv1.Command) proto.Message {
		return &progressorv1.CompleteBatchRequest{Answers: []*progressorv1.LeaseAnswer{{
			LeaseToken: leaseIn("own"), Answer: &progressorv1.LeaseAnswer_Response{
				Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{
					Result: &progressorv1.Result{Commands: []*progressorv1.Command{command}}}}}}}}
	}
	start := func(namespace string) proto.Message {
		return complete(&progressorv1.Command{Command: &progressorv1.Command_Start{
			Start: &progressorv1.StartCommand{Namespace: namespace, ProcessId: "p"}}})
	}
	cancel := complete(&progressorv1.Command{Command: &progressorv1.Command_Cancel{
		Cancel: &progressorv1.CancelCommand{Namespace: "other", ProcessId: "p"}}})
	enqueue := complete(&progressorv1.Command{Command: &progressorv1.Command_Enqueue{
		Enqueue: &progressorv1.EnqueueCommand{Namespace: "other", JobId: "j"}}})
	startRun := complete(&progressorv1.Command{Command: &progressorv1.Command_StartRun{
		StartRun: &progressorv1.StartRunCommand{Namespace: "other", RunId: "r"}}})
	for _, c := range []struct {
		name      string
		principal *auth.Principal
		request   proto.Message
		want      string
	}{
		{"start_run", worker, startRun, "CompleteBatch needs the permission process.call in namespace other"},
		{"start_run with a grant", both, startRun, ""},
		{"enqueue", worker, enqueue, "CompleteBatch needs the permission job.enqueue in namespace other"},
		{"enqueue with a grant", both, enqueue, ""},
		{"no namespace", worker, start(""), ""},
		{"own namespace", worker, start("own"), ""},
		{"another namespace", worker, start("other"),
			"CompleteBatch needs the permission process.call in namespace other"},
		{"another namespace, in which it is also a worker", elsewhere, start("other"),
			"CompleteBatch needs the permission process.call in namespace other"},
		{"another namespace with a grant", both, start("other"), ""},
		{"own namespace of a worker with a limit", limited, start("own"),
			"CompleteBatch needs the permission process.call in namespace own"},
		{"no namespace of a worker with a limit", limited, start(""),
			"CompleteBatch needs the permission process.call in namespace own"},
		{"a worker with a limit and a grant", trusted, start(""), ""},
		{"a worker with a limit without commands", limited, complete(&progressorv1.Command{}), ""},
		{"cancel", worker, cancel, "CompleteBatch needs the permission process.call in namespace other"},
		{"cancel with a grant", both, cancel, ""},
	} {
		_, err := a.decide(c.principal, "/progressor.v1.WorkerService/CompleteBatch", c.request)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			requireCode(t, err, connect.CodePermissionDenied)
			d := detailOf(err)
			where := c.want[strings.LastIndexByte(c.want, ' ')+1:]
			if d.GetReason() != progressorv1.ErrorDetail_REASON_PERMISSION || d.GetNamespace() != where {
				t.Errorf("%s: detail %s", c.name, text(d))
			}
		}
	}
}

// A client may allow commands of a namespace to other namespaces only if the client itself may call
// processes there. This also applies to a pattern of namespaces.
func TestCommandNamespaces(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	p := auth.NewPrincipal("key:a", []auth.Grant{
		{Role: "admin", Namespaces: "own"}, {Role: "client", Namespaces: "shop/a*"}, {Role: "viewer", Namespaces: "*"}})
	for to, want := range map[string]bool{
		"": true, "own": true, "shop/a": true, "shop/ab*": true, "shop/a*": true, "shop/*": false, "shop/b": false,
		"*": false, "own*": false, "other": false,
	} {
		ns := &progressorv1.Namespace{Namespace: "own", CommandNamespaces: []string{"own", to}}
		_, err := a.decide(p, "/progressor.v1.NamespaceService/PutNamespace",
			&progressorv1.PutNamespaceRequest{Namespace: ns})
		if (err == nil) != want {
			t.Errorf("%q: %v", to, err)
		}
		if err != nil && !strings.Contains(err.Error(), "process.call in namespace "+to) {
			t.Errorf("%q: %v", to, err)
		}
	}
}

// A client that may not see payloads cannot use them in a filter.
func TestFiltersOfPayloads(t *testing.T) {
	t.Parallel()
	a := newRules(t)
	for filter, want := range map[string]bool{"": true, `state = FAILED`: true, `metadata.a = "x"`: true,
		`args.a = "x"`: false, `name = "x" AND Args.a = 1`: false, `payload.card = "4*"`: false} {
		for procedure, request := range map[string]proto.Message{
			"/progressor.v1.JobService/ListJobs":   &progressorv1.ListJobsRequest{Namespace: "own", Filter: filter},
			"/progressor.v1.BulkService/StartBulk": &progressorv1.StartBulkRequest{Namespace: "own", Filter: filter},
		} {
			if _, err := a.decide(roleOf("support"), procedure, request); (err == nil) != want {
				t.Errorf("%s with %q: %v", procedure, filter, err)
			}
			if _, err := a.decide(roleOf("admin"), procedure, request); err != nil {
				t.Errorf("%s with %q as admin: %v", procedure, filter, err)
			}
		}
	}
}

// A stream ends when its principal loses the permission or its key.
func TestStreamsAreFollowed(t *testing.T) {
	t.Parallel()
	valid := storage.KeyState{SecretHash: make([]byte, 32), Roles: []string{"viewer"}, Patterns: []string{"own"}}
	revoked, other := valid, valid
	revoked.Revoked, other.Patterns = true, []string{"other"}
	request := &progressorv1.WatchChangesRequest{Namespace: "own"}
	for name, c := range map[string]struct {
		row  storage.KeyState
		want connect.Code
	}{"revoked": {revoked, connect.CodeUnauthenticated}, "another grant": {other, connect.CodePermissionDenied}} {
		a, err := newAuthorization(auth.New(roleKeys{"a": c.row}, "", nil), services...)
		if err != nil {
			t.Fatal(err)
		}
		a.recheck = time.Millisecond
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), principalKey{}, auth.NewPrincipal("key:a",
			[]auth.Grant{{Role: "viewer", Namespaces: "own"}})), 10*time.Second)
		var got error
		a.follow(ctx, "/progressor.v1.ChangeService/WatchChanges", request, func(access) {},
			func(err error) { got = err })
		if connect.CodeOf(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
		cancel()
	}
	// The stream of a valid key continues until the stream itself ends.
	a, err := newAuthorization(auth.New(roleKeys{"a": valid}, "", nil), services...)
	if err != nil {
		t.Fatal(err)
	}
	a.recheck = time.Millisecond
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), principalKey{}, auth.NewPrincipal("key:a", nil)),
		50*time.Millisecond)
	defer cancel()
	a.follow(ctx, "/progressor.v1.ChangeService/WatchChanges", request, func(access) {},
		func(err error) { t.Errorf("ended: %v", err) })
}

// A stream hides payloads as soon as its principal may no longer see them.
func TestStreamsHidePayloads(t *testing.T) {
	t.Parallel()
	support := storage.KeyState{SecretHash: make([]byte, 32), Roles: []string{"support"}, Patterns: []string{"own"}}
	a, err := newAuthorization(auth.New(roleKeys{"a": support}, "", nil), services...)
	if err != nil {
		t.Fatal(err)
	}
	a.recheck = time.Millisecond
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), principalKey{}, auth.NewPrincipal("key:a",
		[]auth.Grant{{Role: "viewer", Namespaces: "own"}})), 10*time.Second)
	defer cancel()
	const procedure = "/progressor.v1.ProcessService/WatchProcess"
	request := &progressorv1.WatchProcessRequest{Namespace: "own", ProcessId: "p"}
	sent := &progressorv1.WatchProcessResponse{Update: &progressorv1.WatchProcessResponse_Process{
		Process: &progressorv1.Process{AuxState: []byte("secret")}}}
	before, err := a.check(ctx, procedure, request)
	if err != nil || len(before.shown(sent).(*progressorv1.WatchProcessResponse).GetProcess().GetAuxState()) == 0 {
		t.Fatalf("a viewer cannot see a payload: %v", err)
	}
	var now access
	a.follow(ctx, procedure, request, func(granted access) { now = granted; cancel() },
		func(err error) { t.Error(err) })
	if now.rule == nil || len(now.shown(sent).(*progressorv1.WatchProcessResponse).GetProcess().GetAuxState()) != 0 {
		t.Errorf("a payload is shown: %v", now)
	}
}

// Principals with different grants do not share responses.
func TestSharedByView(t *testing.T) {
	t.Parallel()
	s, reads := newShared(), 0
	for _, role := range []string{"viewer", "viewer", "support"} {
		ctx := context.WithValue(t.Context(), principalKey{}, roleOf(role))
		_, err := s.respond(ctx, time.Minute, false, "ListNodes", &progressorv1.ListNodesRequest{},
			func(context.Context) (connect.AnyResponse, error) {
				reads++
				return connect.NewResponse(&progressorv1.ListNodesResponse{}), nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	if reads != 2 {
		t.Errorf("%d reads for two views", reads)
	}
}

// Principals with the same grants do not share lists of waits, because a list shows which waits the
// principal may answer.
func TestSharedByClient(t *testing.T) {
	t.Parallel()
	s, reads := newShared(), 0
	for _, name := range []string{"key:a", "key:b", "key:a"} {
		p := auth.NewPrincipal(name, []auth.Grant{{Role: "client", Namespaces: "shop"}})
		ctx := context.WithValue(t.Context(), principalKey{}, p)
		_, err := s.respond(ctx, time.Minute, false, "ListOpenWaits", &progressorv1.ListOpenWaitsRequest{},
			func(context.Context) (connect.AnyResponse, error) {
				reads++
				return connect.NewResponse(&progressorv1.ListOpenWaitsResponse{}), nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	if reads != 2 {
		t.Errorf("%d reads for two clients", reads)
	}
}

// A service cannot be served if its methods do not declare the permission that they need.
func TestMethodsWithoutNeeds(t *testing.T) {
	t.Parallel()
	_, err := newAuthorization(auth.New(&oneKey{}, "", nil), "progressor.v1.ProcessorService")
	if err == nil || !strings.Contains(err.Error(), "Process has no option progressor.v1.needs") {
		t.Errorf("%v", err)
	}
}
