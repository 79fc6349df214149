package auth

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

const (
	// DefaultOverlap is how long a key stays valid by default after it was rotated.
	DefaultOverlap = 24 * time.Hour
	// The page sizes of lists.
	defaultPage, maxKeyPage, maxGrantPage = 100, 200, 1000
)

// Access manages keys, grants and logins to the console.
type Access struct {
	store  storage.Access
	logins LoginStore
}

// NewAccess returns an Access for the keys, grants and logins in a database.
func NewAccess(store *storage.Store) *Access { return &Access{store.Access(), store} }

// CreateKey creates a key.
func (a *Access) CreateKey(
	ctx context.Context, r *progressorv1.CreateKeyRequest, by process.Actor,
) (*progressorv1.CreateKeyResponse, error) {
	id, token := NewToken()
	hash := Hash(token)
	k := storage.NewKey{KeyID: id, Name: r.GetName(), Hash: hash[:], TTL: r.GetTtl().AsDuration()}
	for n, role := range r.GetRoles() {
		if err := checkRole(role, fmt.Sprintf("roles[%d].", n)); err != nil {
			return nil, err
		}
		k.Grants = append(k.Grants, grantKey(KeyPrincipal(id), role))
	}
	if err := a.store.CreateKey(ctx, k, by); err != nil {
		return nil, err
	}
	key, err := a.key(ctx, id)
	return &progressorv1.CreateKeyResponse{Key: key, Token: token}, err
}

// RotateKey replaces a key with another one.
func (a *Access) RotateKey(
	ctx context.Context, r *progressorv1.RotateKeyRequest, by process.Actor,
) (*progressorv1.RotateKeyResponse, error) {
	id, token := NewToken()
	hash := Hash(token)
	rotation := storage.Rotation{
		KeyID: r.GetKeyId(), NewID: id, Hash: hash[:], TTL: r.GetTtl().AsDuration(), Overlap: DefaultOverlap,
	}
	if r.GetOverlap() != nil {
		rotation.Overlap = r.GetOverlap().AsDuration()
	}
	if _, err := a.store.RotateKey(ctx, rotation, by); err != nil {
		return nil, err
	}
	key, err := a.key(ctx, id)
	if err != nil {
		return nil, err
	}
	old, err := a.key(ctx, r.GetKeyId())
	return &progressorv1.RotateKeyResponse{Key: key, Token: token, OldKey: old}, err
}

// RevokeKey revokes a key.
func (a *Access) RevokeKey(ctx context.Context, keyID string, by process.Actor) (*progressorv1.Key, error) {
	if _, err := a.store.RevokeKey(ctx, keyID, by); err != nil {
		return nil, err
	}
	return a.key(ctx, keyID)
}

// ListKeys returns a page of the keys.
func (a *Access) ListKeys(
	ctx context.Context, r *progressorv1.ListKeysRequest,
) (*progressorv1.ListKeysResponse, error) {
	after, err := wire.NameAfter(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(r.GetPageSize(), maxKeyPage)
	rows, err := a.store.ListKeys(ctx,
		storage.KeyQuery{AfterID: after, ValidOnly: r.GetValidOnly(), Limit: size + 1})
	if err != nil {
		return nil, err
	}
	page := &progressorv1.ListKeysResponse{}
	if len(rows) > size {
		rows = rows[:size]
		page.NextPageToken = wire.TokenAfter(rows[size-1].KeyID)
	}
	for n := range rows {
		page.Keys = append(page.Keys, keyMessage(&rows[n]))
	}
	return page, nil
}

// AddGrant gives a role to a client. added is false if the client already has the role.
func (a *Access) AddGrant(ctx context.Context, g *progressorv1.Grant, by process.Actor) (added bool, err error) {
	keyID, err := checkPrincipal("grant.principal", g.GetPrincipal())
	if err != nil {
		return false, err
	}
	if err := checkRole(g.GetRole(), "grant.role."); err != nil {
		return false, err
	}
	return a.store.AddGrant(ctx, keyID, grantKey(g.GetPrincipal(), g.GetRole()), by)
}

// RemoveGrant takes a role away from a client.
func (a *Access) RemoveGrant(ctx context.Context, g *progressorv1.Grant, by process.Actor) error {
	return a.store.RemoveGrant(ctx, grantKey(g.GetPrincipal(), g.GetRole()), by)
}

// ListGrants returns a page of the grants.
func (a *Access) ListGrants(
	ctx context.Context, r *progressorv1.ListGrantsRequest,
) (*progressorv1.ListGrantsResponse, error) {
	after, err := grantAfter(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(r.GetPageSize(), maxGrantPage)
	rows, err := a.store.ListGrants(ctx,
		storage.GrantQuery{After: after, Principal: r.GetPrincipal(), Limit: size + 1})
	if err != nil {
		return nil, err
	}
	page := &progressorv1.ListGrantsResponse{}
	if len(rows) > size {
		rows = rows[:size]
		last := &rows[size-1]
		page.NextPageToken = wire.TokenAfter(strings.Join([]string{last.Principal, last.Role, last.Namespaces}, "\n"))
	}
	for n := range rows {
		g := &rows[n]
		page.Grants = append(page.Grants, &progressorv1.Grant{
			Principal: g.Principal, Role: &progressorv1.Role{Role: g.Role, Pattern: g.Namespaces},
			CreatedBy: g.CreatedBy, CreatedTime: timestamppb.New(g.CreatedTime),
		})
	}
	return page, nil
}

// grantAfter returns the grant in a page token, or an empty one for the first page.
func grantAfter(pageToken string) (storage.GrantKey, error) {
	text, err := wire.NameAfter(pageToken)
	if err != nil || text == "" {
		return storage.GrantKey{}, err
	}
	parts := strings.Split(text, "\n")
	if len(parts) != 3 {
		return storage.GrantKey{}, process.InvalidPageToken()
	}
	return storage.GrantKey{Principal: parts[0], Role: parts[1], Namespaces: parts[2]}, nil
}

// ListLogins returns a page of the logins to the console.
func (a *Access) ListLogins(
	ctx context.Context, r *progressorv1.ListConsoleLoginsRequest,
) (*progressorv1.ListConsoleLoginsResponse, error) {
	at, id, err := loginAfter(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	if user := r.GetUser(); user != "" && !IsUser(user) {
		return nil, notUser("user", user)
	}
	size := pageSize(r.GetPageSize(), maxGrantPage)
	rows, err := a.store.ListLogins(ctx,
		storage.LoginQuery{AfterTime: at, AfterID: id, Principal: r.GetUser(), Limit: size + 1})
	if err != nil {
		return nil, err
	}
	page := &progressorv1.ListConsoleLoginsResponse{}
	if len(rows) > size {
		rows = rows[:size]
		last := &rows[size-1]
		page.NextPageToken = wire.TokenAfter(fmt.Sprint(last.CreatedTime.UnixMicro(), " ", last.LoginID))
	}
	for n := range rows {
		l := &rows[n]
		page.Logins = append(page.Logins, &progressorv1.ConsoleLogin{
			LoginId: l.LoginID, User: l.Principal, CreatedTime: timestamppb.New(l.CreatedTime),
			UsedTime: timestamppb.New(l.UsedTime), ExpireTime: timestamppb.New(l.ExpireTime),
		})
	}
	return page, nil
}

// loginAfter returns the time and the ID of the login in a page token, or a zero time for the first
// page.
func loginAfter(pageToken string) (at time.Time, id string, err error) {
	text, err := wire.NameAfter(pageToken)
	if err != nil || text == "" {
		return time.Time{}, "", err
	}
	micros, id, _ := strings.Cut(text, " ")
	us, err := strconv.ParseInt(micros, 10, 64)
	if at = time.UnixMicro(us); err != nil || at.Year() < 1970 || at.Year() > 9999 {
		return time.Time{}, "", process.InvalidPageToken()
	}
	return at, id, nil
}

// EndLogins ends one login, or all logins of a user, and returns how many it ended.
func (a *Access) EndLogins(
	ctx context.Context, r *progressorv1.EndConsoleLoginsRequest, by process.Actor,
) (ended int, err error) {
	if id := r.GetLoginId(); id != "" {
		err := a.logins.DeleteLogin(ctx, id, by)
		if errors.Is(err, process.ErrKeyNotFound) {
			return 0, process.ErrLoginNotFound
		}
		return 1, err
	}
	if user := r.GetUser(); !IsUser(user) {
		return 0, notUser("user", user)
	}
	return a.store.EndLogins(ctx, r.GetUser(), by)
}

// key returns a key, or process.ErrKeyNotFound.
func (a *Access) key(ctx context.Context, id string) (*progressorv1.Key, error) {
	rows, err := a.store.ListKeys(ctx, storage.KeyQuery{KeyID: id, Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, process.ErrKeyNotFound
	}
	return keyMessage(&rows[0]), nil
}

func keyMessage(k *storage.ListedKey) *progressorv1.Key {
	m := &progressorv1.Key{
		KeyId: k.KeyID, Name: k.Name, State: KeyState(k), CreatedBy: k.CreatedBy,
		CreatedTime: timestamppb.New(k.CreatedTime), RoleCount: k.RoleCount,
	}
	if k.ReplacedBy != nil {
		m.ReplacedBy = *k.ReplacedBy
	}
	for _, t := range []struct {
		to   **timestamppb.Timestamp
		from *time.Time
	}{{&m.UsedTime, k.UsedTime}, {&m.ExpireTime, k.ExpireTime}, {&m.RevokedTime, k.RevokedTime}} {
		if t.from != nil {
			*t.to = timestamppb.New(*t.from)
		}
	}
	for _, g := range grantsOf(k.Roles, k.Patterns) {
		m.Roles = append(m.Roles, &progressorv1.Role{Role: g.Role, Pattern: g.Namespaces})
	}
	return m
}

// KeyState returns the state of a key.
func KeyState(k *storage.ListedKey) progressorv1.KeyState {
	switch {
	case k.RevokedTime != nil:
		return progressorv1.KeyState_KEY_STATE_REVOKED
	case k.Expired:
		return progressorv1.KeyState_KEY_STATE_EXPIRED
	}
	return progressorv1.KeyState_KEY_STATE_VALID
}

func grantKey(principal string, role *progressorv1.Role) storage.GrantKey {
	return storage.GrantKey{Principal: principal, Role: role.GetRole(), Namespaces: role.GetPattern()}
}

// checkRole returns an error if a role of a request is unknown or malformed. path is the path of
// the role in the request.
func checkRole(role *progressorv1.Role, path string) error {
	invalid := (Grant{role.GetRole(), role.GetPattern()}).Check()
	if invalid == nil {
		return nil
	}
	if invalid.Field == "namespaces" {
		invalid.Field = "pattern"
	}
	invalid.Field = path + invalid.Field
	return invalid
}

// checkPrincipal returns the key ID of a principal, or "" if the principal is not a key.
func checkPrincipal(field, principal string) (keyID string, err error) {
	keyID, err = KeyOf(principal)
	if err != nil {
		return "", &process.InvalidError{Field: field, Message: err.Error()}
	}
	return keyID, nil
}

func notUser(field, user string) error {
	return &process.InvalidError{Field: field, Message: fmt.Sprintf(
		"must be user:ISSUER#NAME, such as user:https://login.example.com#alice (got %.300q)", user)}
}

// pageSize returns the number of rows of a page.
func pageSize(requested int32, limit int) int {
	if requested <= 0 {
		return defaultPage
	}
	return min(int(requested), limit)
}
