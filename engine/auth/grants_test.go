package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// design is the table of roles in docs/security.md.
var design = map[string]string{
	"viewer":  "process.read payload.read namespace.read",
	"support": "process.read namespace.read process.operate wait.answer",
	"client":  "process.read payload.read process.call job.enqueue wait.answer",
	"worker":  "job.work",
	"author":  "process.read payload.read process.call job.enqueue wait.answer cron.write flow.write",
	"admin": "process.read payload.read process.call process.operate job.enqueue job.work cron.write flow.write " +
		"wait.answer namespace.read namespace.write audit.read",
	"root": "process.read payload.read process.call process.operate job.enqueue job.work cron.write flow.write " +
		"wait.answer namespace.read namespace.write audit.read node.operate auth.admin",
}

// eachPermission calls look with each permission.
func eachPermission(look func(progressorv1.Permission)) {
	for number := range progressorv1.Permission_name {
		if number != 0 {
			look(progressorv1.Permission(number))
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	if len(Roles()) != len(design) {
		t.Errorf("roles %q, want %d", Roles(), len(design))
	}
	for role, text := range design {
		want := strings.Fields(text)
		p := NewPrincipal("key:a", []Grant{{role, "shop/*"}})
		eachPermission(func(permission progressorv1.Permission) {
			name := PermissionName(permission)
			if got := p.Can(permission, "shop/x"); got != slices.Contains(want, name) {
				t.Errorf("%s: %s is %v", role, name, got)
			}
			if got := slices.Contains(RolesWith(permission), role); got != slices.Contains(want, name) {
				t.Errorf("%s is a role with %s: %v", role, name, got)
			}
			for _, other := range []string{"shop", "shops", "a/shop/x", ""} {
				if p.Can(permission, other) {
					t.Errorf("%s in shop/* has %s in %q", role, name, other)
				}
			}
			if p.CanEverywhere(permission) {
				t.Errorf("%s in shop/* has %s everywhere", role, name)
			}
		})
	}
}

// Grants add up. An unknown role and a principal without grants have no permissions.
func TestGrants(t *testing.T) {
	t.Parallel()
	const call, read = progressorv1.Permission_PERMISSION_PROCESS_CALL,
		progressorv1.Permission_PERMISSION_NAMESPACE_READ
	p := NewPrincipal("key:a", []Grant{{"viewer", Everywhere}, {"client", "shop"}})
	for _, c := range []struct {
		permission progressorv1.Permission
		namespace  string
		want       bool
	}{{call, "shop", true}, {call, "billing", false}, {read, "shop", true}, {read, "billing", true}} {
		if got := p.Can(c.permission, c.namespace); got != c.want {
			t.Errorf("%s in %s: %v", c.permission, c.namespace, got)
		}
	}
	if !p.CanEverywhere(read) || p.CanEverywhere(call) {
		t.Errorf("everywhere: %v, %v", p.CanEverywhere(read), p.CanEverywhere(call))
	}
	other := NewPrincipal("key:b", []Grant{{"client", "shop"}, {"viewer", Everywhere}})
	if p.View() != other.View() || p.View() == NewPrincipal("key:c", []Grant{{"client", "shop"}}).View() {
		t.Errorf("views: %q, %q", p.View(), other.View())
	}
	for _, none := range []*Principal{
		NewPrincipal("key:a", nil), NewPrincipal("key:a", []Grant{{"owner", Everywhere}}),
	} {
		eachPermission(func(permission progressorv1.Permission) {
			if none.Can(permission, "shop") || none.CanEverywhere(permission) {
				t.Errorf("%q has %s", none.Grants(), permission)
			}
		})
	}
}

func TestGrantsAreChecked(t *testing.T) {
	t.Parallel()
	for _, g := range []Grant{
		{"viewer", "a"}, {"viewer", "*"}, {"client", "shop/*"}, {"root", "*"}, {"admin", "A.b_c-d/e*"},
		{"worker:resize", "shop/*"}, {"worker:mail-*", "a"}, {"worker:*", "*"},
		{"worker:send a letter: now", "a"}, {"worker:" + strings.Repeat("a", 256), "a"},
		{"viewer", strings.Repeat("a", 128)}, {"viewer", strings.Repeat("a", 127) + "*"},
	} {
		if err := g.Check(); err != nil {
			t.Errorf("%v: %v", g, err)
		}
	}
	for _, c := range []struct {
		grant Grant
		want  string
	}{
		{Grant{"owner", "*"}, "role: must be one of viewer, support"},
		{Grant{"", "*"}, "role: must be one of"},
		{Grant{"owner:resize", "*"}, "role: must be one of viewer, support"},
		{Grant{"viewer:resize", "*"}, "role: only worker can be limited to some jobs"},
		{Grant{"root:*", "*"}, "role: only worker can be limited to some jobs"},
		{Grant{"worker:", "*"}, "role: the jobs must be NAME, PREFIX* or *"},
		{Grant{"worker:a\nroot", "*"}, "role: the jobs must be NAME, PREFIX* or *"},
		{Grant{"worker:a\xff", "*"}, "role: the jobs must be NAME, PREFIX* or *"},
		{Grant{"worker:" + strings.Repeat("a", 257), "*"}, "role: the jobs must be NAME, PREFIX* or *"},
		{Grant{"root", "shop/*"}, "namespaces: must be * for the role root"},
		{Grant{"viewer", ""}, "namespaces: must be NAME, PREFIX* or *"},
		{Grant{"viewer", "*/a"}, "namespaces: must be NAME"},
		{Grant{"viewer", "a*b"}, "namespaces: must be NAME"},
		{Grant{"viewer", "**"}, "namespaces: must be NAME"},
		{Grant{"viewer", "a b"}, "namespaces: must be NAME"},
		{Grant{"viewer", "a%"}, "namespaces: must be NAME"},
		{Grant{"viewer", strings.Repeat("a", 129)}, "namespaces: must be NAME"},
	} {
		if err := c.grant.Check(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v", c.grant, err)
		}
	}
}

// A change of the grants takes effect within 10 s, even for an open stream.
func TestChangedGrants(t *testing.T) {
	t.Parallel()
	const call = progressorv1.Permission_PERMISSION_PROCESS_CALL
	a, keys, at := newTest(t, "")
	id, token := keys.add()
	p, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
	if err != nil || p.Can(call, "shop") {
		t.Fatalf("without grants: %v, %v", p, err)
	}
	keys.set(func(k *table) {
		row := k.rows[id]
		row.Roles, row.Patterns = []string{"client"}, []string{"shop"}
		k.rows[id] = row
	})
	at.now = at.now.Add(CacheTime)
	if now, err := a.Current(t.Context(), p); err != nil || !now.Can(call, "shop") || now.Name != p.Name {
		t.Errorf("a stream: %v, %v", now, err)
	}
	now, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
	if err != nil || !now.Can(call, "shop") {
		t.Errorf("a request: %v, %v", now, err)
	}
	keys.set(func(k *table) { k.rows[id] = storage.KeyState{SecretHash: k.rows[id].SecretHash, Revoked: true} })
	at.now = at.now.Add(CacheTime)
	if now, err := a.Current(t.Context(), p); !errors.Is(err, ErrInvalid) {
		t.Errorf("a stream of a revoked key: %v, %v", now, err)
	}
}

// A worker that is limited to some jobs may take only these jobs, and has no other permissions.
// Grants add up, and a grant without a limit allows all jobs.
func TestJobs(t *testing.T) {
	t.Parallel()
	const work = progressorv1.Permission_PERMISSION_JOB_WORK
	p := NewPrincipal("key:a", []Grant{
		{"worker:resize", "shop"}, {"worker:mail-*", "shop*"}, {"worker:resize", "shop"}, {"worker", "open"},
		{"worker:a", "open"}, {"viewer", "seen"}, {"worker:", "broken"}, {"viewer:a", "broken"},
	})
	for namespace, want := range map[string]process.Patterns{
		"shop": {"mail-*", "resize"}, "shops": {"mail-*"}, "open": nil, "seen": {}, "none": {}, "broken": {},
	} {
		got := p.Jobs(namespace)
		if !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %q, want %q", namespace, got, want)
		}
		if p.Can(work, namespace) != (want == nil || len(want) > 0) {
			t.Errorf("%s: job.work is %v", namespace, p.Can(work, namespace))
		}
	}
	eachPermission(func(permission progressorv1.Permission) {
		if permission != work && (p.Can(permission, "shop") || p.Can(permission, "broken")) {
			t.Errorf("a limited worker has %s", permission)
		}
	})
	if want := NewPrincipal("key:b", []Grant{{"worker:mail-*", "shop"}}); want.View() == p.View() {
		t.Error("clients with different limits have the same view")
	}
}
