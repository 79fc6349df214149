package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// wantCode fails the test unless err has the given code and contains text.
func wantCode(t *testing.T, err error, code connect.Code, text string) {
	t.Helper()
	if connect.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %s: %s", err, code, text)
	}
}

func roleIn(role, pattern string) *progressorv1.Role {
	return &progressorv1.Role{Role: role, Pattern: pattern}
}

// TestAccessService creates, rotates and revokes keys and changes grants with the API, like an
// operator in the console.
func TestAccessService(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	rootID, rootToken := newKey(t, s.dsn, "operator", "root")
	access, ctx := client.New(s.URL, client.WithToken(rootToken)).Access, t.Context()

	created, err := access.CreateKey(ctx, &progressorv1.CreateKeyRequest{
		Name: "billing", Roles: []*progressorv1.Role{roleIn("client", "billing"), roleIn("worker:a", "*")},
		Ttl: durationpb.New(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetKey().GetKeyId()
	if out := s.with(created.GetToken()).OK(t, "whoami"); out != "key:"+id+"\nclient billing\nworker:a *\n" {
		t.Errorf("whoami: %q", out)
	}
	list, err := access.ListKeys(ctx, &progressorv1.ListKeysRequest{PageSize: 1, ValidOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	k := list.GetKeys()[0]
	if list.GetNextPageToken() == "" || k.GetKeyId() != id || k.GetName() != "billing" || k.GetRoleCount() != 2 ||
		k.GetState() != progressorv1.KeyState_KEY_STATE_VALID || k.GetCreatedBy() != "key:"+rootID ||
		k.GetUsedTime() == nil || k.GetExpireTime().AsTime().Sub(k.GetCreatedTime().AsTime()) != time.Hour {
		t.Errorf("%v", list)
	}

	rotated, err := access.RotateKey(ctx, &progressorv1.RotateKeyRequest{KeyId: id})
	if err != nil {
		t.Fatal(err)
	}
	newID := rotated.GetKey().GetKeyId()
	if rotated.GetOldKey().GetReplacedBy() != newID || rotated.GetKey().GetName() != "billing" {
		t.Errorf("%v", rotated)
	}
	for _, token := range []string{created.GetToken(), rotated.GetToken()} {
		clitest.WantLines(t, s.with(token).OK(t, "whoami"), "client billing\nworker:a *")
	}
	_, err = access.RotateKey(ctx, &progressorv1.RotateKeyRequest{KeyId: id})
	wantCode(t, err, connect.CodeFailedPrecondition, "is replaced by key "+newID)
	revoked, err := access.RevokeKey(ctx, &progressorv1.RevokeKeyRequest{KeyId: id})
	if err != nil || revoked.GetKey().GetState() != progressorv1.KeyState_KEY_STATE_REVOKED {
		t.Errorf("%v, %v", revoked, err)
	}
	_, err = access.RevokeKey(ctx, &progressorv1.RevokeKeyRequest{KeyId: id})
	wantCode(t, err, connect.CodeNotFound, fmt.Sprintf("there is no valid key %q", id))
	_, err = access.RotateKey(ctx, &progressorv1.RotateKeyRequest{KeyId: id})
	wantCode(t, err, connect.CodeNotFound, fmt.Sprintf("there is no valid key %q", id))

	grant := &progressorv1.Grant{Principal: "group:support", Role: roleIn("support", "shop/*")}
	for _, want := range []bool{true, false} {
		added, err := access.AddGrant(ctx, &progressorv1.AddGrantRequest{Grant: grant})
		if err != nil || added.GetAdded() != want {
			t.Errorf("%v, %v", added, err)
		}
	}
	grants, err := access.ListGrants(ctx, &progressorv1.ListGrantsRequest{Principal: "group:support"})
	if err != nil || len(grants.GetGrants()) != 1 || grants.GetGrants()[0].GetCreatedBy() != "key:"+rootID {
		t.Errorf("%v, %v", grants, err)
	}
	if _, err := access.RemoveGrant(ctx, &progressorv1.RemoveGrantRequest{Grant: grant}); err != nil {
		t.Error(err)
	}
	_, err = access.RemoveGrant(ctx, &progressorv1.RemoveGrantRequest{Grant: grant})
	wantCode(t, err, connect.CodeNotFound, `group:support does not have the role "support" in shop/*`)
	out := s.with(rootToken).OK(t, "audit")
	clitest.WantLines(t, out, "CreateKey", "RotateKey", "RevokeKey", "AddGrant", "RemoveGrant", "key:"+rootID)
	if strings.Contains(out, created.GetToken()) || strings.Contains(out, rotated.GetToken()) {
		t.Error("the audit contains a token")
	}
}

// An operator can list and end the logins of users to the console.
func TestAccessServiceEndsLogins(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	_, token := newKey(t, s.dsn, "operator", "root")
	access, ctx := client.New(s.URL, client.WithToken(token)).Access, t.Context()
	const alice = "user:https://login.example.com#alice"
	db := storagetest.Connect(t, s.dsn)
	for _, id := range []string{"one", "two", "three"} {
		if _, err := db.Exec(ctx, `INSERT INTO progressor.console_logins
			(login_id, secret_hash, principal, group_names, expire_time)
			VALUES ($1, $2, $3, '{}', now() + interval '1 h')`, id, make([]byte, 32), alice); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	for r := (&progressorv1.ListConsoleLoginsRequest{PageSize: 2, User: alice}); ; {
		page, err := access.ListConsoleLogins(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.GetLogins() {
			seen = append(seen, l.GetLoginId())
		}
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			break
		}
	}
	if got := strings.Join(seen, " "); got != "three two one" {
		t.Errorf("logins: %s", got)
	}
	end := func(r *progressorv1.EndConsoleLoginsRequest) (int32, error) {
		ended, err := access.EndConsoleLogins(ctx, r)
		return ended.GetEnded(), err
	}
	one := &progressorv1.EndConsoleLoginsRequest{Which: &progressorv1.EndConsoleLoginsRequest_LoginId{LoginId: "one"}}
	if n, err := end(one); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err := end(one)
	wantCode(t, err, connect.CodeNotFound, `login "one" not found: it has ended`)
	all := &progressorv1.EndConsoleLoginsRequest{Which: &progressorv1.EndConsoleLoginsRequest_User{User: alice}}
	if n, err := end(all); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err = end(&progressorv1.EndConsoleLoginsRequest{
		Which: &progressorv1.EndConsoleLoginsRequest_User{User: "alice"}})
	wantCode(t, err, connect.CodeInvalidArgument, "user: must be user:ISSUER#NAME")
}

// Only root may manage keys, and invalid requests are rejected. An engine that does not
// authenticate its clients rejects all changes. Otherwise, anyone who can connect could create a
// key for the other engines.
func TestAccessServiceRejects(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	ctx, all := t.Context(), []*progressorv1.Role{roleIn("root", "*")}
	rootID, rootToken := newKey(t, s.dsn, "operator", "root")
	_, adminToken := newKey(t, s.dsn, "admin", "admin", "*")
	admin := client.New(s.URL, client.WithToken(adminToken)).Access
	_, err := admin.CreateKey(ctx, &progressorv1.CreateKeyRequest{Name: "a", Roles: all})
	wantPermission(t, err, "CreateKey needs the permission auth.admin in all namespaces")
	_, err = admin.ListKeys(ctx, &progressorv1.ListKeysRequest{})
	wantPermission(t, err, "(roles with it: root)")

	root := client.New(s.URL, client.WithToken(rootToken)).Access
	for want, r := range map[string]*progressorv1.CreateKeyRequest{
		"name: is required":                   {Roles: all},
		"roles: ":                             {Name: "a"},
		"roles[1].role: must be one of":       {Name: "a", Roles: append(all, roleIn("owner", "*"))},
		"roles[0].pattern: must be the name":  {Name: "a", Roles: []*progressorv1.Role{roleIn("viewer", "a*b")}},
		"roles[0].pattern: must be * for the": {Name: "a", Roles: []*progressorv1.Role{roleIn("root", "a")}},
		"ttl: ":                               {Name: "a", Roles: all, Ttl: durationpb.New(time.Millisecond)},
	} {
		_, err := root.CreateKey(ctx, r)
		wantCode(t, err, connect.CodeInvalidArgument, want)
	}
	add := func(principal string) error {
		_, err := root.AddGrant(ctx, &progressorv1.AddGrantRequest{
			Grant: &progressorv1.Grant{Principal: principal, Role: roleIn("viewer", "a")}})
		return err
	}
	wantCode(t, add("alice"), connect.CodeInvalidArgument, "grant.principal: must be key:ID")
	wantCode(t, add("key:abc"), connect.CodeNotFound, `there is no valid key "abc"`)
	_, err = root.RevokeKey(ctx, &progressorv1.RevokeKeyRequest{KeyId: "A B"})
	wantCode(t, err, connect.CodeInvalidArgument, "key_id: must be 1 to 32 characters of a-z and 0-9")
	for _, token := range []string{"!", "eA"} { // eA is "x" in Base64
		_, err = root.ListGrants(ctx, &progressorv1.ListGrantsRequest{PageToken: token})
		wantCode(t, err, connect.CodeInvalidArgument, "page_token")
		_, err = root.ListConsoleLogins(ctx, &progressorv1.ListConsoleLoginsRequest{PageToken: token})
		wantCode(t, err, connect.CodeInvalidArgument, "page_token")
	}

	open := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", s.dsn)
	none := client.New(open.URL).Access
	_, err = none.CreateKey(ctx, &progressorv1.CreateKeyRequest{Name: "a", Roles: all})
	wantCode(t, err, connect.CodeFailedPrecondition, "does not authenticate its clients (--auth.mode none)")
	_, err = none.RotateKey(ctx, &progressorv1.RotateKeyRequest{KeyId: rootID})
	wantCode(t, err, connect.CodeFailedPrecondition, "does not authenticate")
	_, err = none.RevokeKey(ctx, &progressorv1.RevokeKeyRequest{KeyId: rootID})
	wantCode(t, err, connect.CodeFailedPrecondition, "does not authenticate")
	grant := &progressorv1.Grant{Principal: "group:a", Role: roleIn("root", "*")}
	_, err = none.AddGrant(ctx, &progressorv1.AddGrantRequest{Grant: grant})
	wantCode(t, err, connect.CodeFailedPrecondition, "does not authenticate")
	_, err = none.RemoveGrant(ctx, &progressorv1.RemoveGrantRequest{Grant: grant})
	wantCode(t, err, connect.CodeFailedPrecondition, "does not authenticate")
	_, err = none.EndConsoleLogins(ctx, &progressorv1.EndConsoleLoginsRequest{
		Which: &progressorv1.EndConsoleLoginsRequest_LoginId{LoginId: "one"}})
	wantCode(t, err, connect.CodeFailedPrecondition, "does not authenticate")
}

// The command replaces a key. Both keys are valid during the overlap.
func TestKeyRotate(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	program := clitest.Program{Commands: newCommands}
	id, token := newKey(t, s.dsn, "mailer", "worker", "shop/*")
	r := program.Run(t, "key", "rotate", id, "--db.dsn", s.dsn)
	if r.Code != cli.ExitOK || !strings.Contains(r.Stderr, "replaces "+id+" (mailer), which is valid until ") {
		t.Fatalf("%+v", r)
	}
	replacing := strings.TrimSpace(r.Stdout)
	for _, token := range []string{token, replacing} {
		clitest.WantLines(t, s.with(token).OK(t, "whoami"), "worker shop/*")
	}
	if r := program.Run(t, "key", "rotate", id, "--db.dsn", s.dsn); r.Code == cli.ExitOK ||
		!strings.Contains(r.Stderr, "was already rotated") {
		t.Errorf("%+v", r)
	}
	newID := strings.Split(replacing, "_")[1]
	r = program.Run(t, "key", "rotate", newID, "--overlap", "0s", "--db.dsn", s.dsn)
	if r.Code != cli.ExitOK || !strings.Contains(r.Stderr, "which is revoked") {
		t.Errorf("%+v", r)
	}
	if out := program.OK(t, "key", "list", "-o", "json", "--db.dsn", s.dsn); strings.Count(out, "replaced_by") != 2 {
		t.Error(out)
	}
	clitest.WantLines(t, program.OK(t, "key", "list", "--db.dsn", s.dsn),
		"KEY NAME STATE CREATED BY CREATED USED EXPIRES", newID+" mailer revoked ")
	for args, want := range map[string]string{
		"key rotate abc":                 `there is no valid key "abc"`,
		"key rotate " + newID:            "there is no valid key",
		"key rotate abc --overlap=-1s":   "--overlap: must be 0s to 8760h0m0s",
		"key rotate abc --expires 500ms": "--expires: must be at least 1s",
	} {
		r := program.Run(t, append(strings.Fields(args), "--db.dsn", s.dsn)...)
		if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
