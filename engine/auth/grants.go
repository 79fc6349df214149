package auth

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Everywhere is the pattern that matches all namespaces.
const Everywhere = "*"

// Grant gives a role in the namespaces that match a pattern: NAME, PREFIX* or *. The role
// worker:JOBS allows what the role worker allows, but only for jobs whose names match the pattern
// JOBS.
type Grant struct{ Role, Namespaces string }

// Check returns an error if the role is unknown or a pattern is malformed. The field of the error
// is role or namespaces.
func (g Grant) Check() *process.InvalidError {
	role, jobs, limited := strings.Cut(g.Role, limitSeparator)
	wrong := func(field, text string, args ...any) *process.InvalidError {
		return &process.InvalidError{Field: field, Message: fmt.Sprintf(text, args...)}
	}
	switch {
	case !slices.Contains(Roles(), role):
		return wrong("role", "must be one of %s (got %.40q)", strings.Join(Roles(), ", "), g.Role)
	case limited && role != roleWorker:
		return wrong("role", "only worker can be limited to some jobs, such as worker:resize (got %.40q)", g.Role)
	case limited && !validJobs(jobs):
		return wrong("role", "the jobs must be NAME, PREFIX* or *, of 1 to %d bytes without control characters, "+
			"such as worker:resize (got %.40q)", maxJobs, g.Role)
	case !process.ValidPattern(g.Namespaces):
		return wrong("namespaces", "must be NAME, PREFIX* or *, such as shop/* (got %.200q)", g.Namespaces)
	case g.Role == RoleRoot && g.Namespaces != Everywhere:
		return wrong("namespaces", "must be * for the role root, which may do everything; the role admin has all "+
			"permissions in some namespaces")
	}
	return nil
}

// Principal is an authenticated client. It is immutable.
type Principal struct {
	Name     string // key:ID, cert:URI, user:ISSUER#NAME, or root
	identity string // the name and then the groups, one per line
	owner    string
	grants   []granted
	view     string
	token    string    // JSON Web Token of the user, which Current verifies again; or ""
	login    string    // key of the cached console login of the user; or ""
	expires  time.Time // when its token or login expires; zero if only the database knows
}

type granted struct {
	permissions permissions
	namespaces  string // a pattern
	jobs        string // a pattern of the jobs that a worker may take; "" for all tasks
}

// NewPrincipal returns a principal with grants. identity is its name, and the names of its groups
// in the following lines.
func NewPrincipal(identity string, grants []Grant) *Principal {
	name, _, _ := strings.Cut(identity, "\n")
	p := &Principal{Name: name, identity: identity, owner: name}
	var texts []string
	for _, g := range grants {
		_, jobs, _ := strings.Cut(g.Role, limitSeparator)
		p.grants = append(p.grants, granted{permissionsOf(g.Role), g.Namespaces, jobs})
		texts = append(texts, g.Role+" "+g.Namespaces)
	}
	slices.Sort(texts)
	p.view = strings.Join(slices.Compact(texts), "\n")
	return p
}

// withToken returns a copy of the principal with a JSON Web Token and the time at which the token
// expires. If token is "", it returns p itself.
func (p *Principal) withToken(token string, expires time.Time) *Principal {
	if token == "" {
		return p
	}
	one := *p
	one.token, one.expires = token, expires
	return &one
}

// expired reports whether the token or login of the principal has expired.
func (p *Principal) expired(now time.Time) bool { return !p.expires.IsZero() && !now.Before(p.expires) }

// HasLogin reports whether the principal has logged in to the console.
func (p *Principal) HasLogin() bool { return p.login != "" }

// Groups returns the groups in the token of a user, as group:NAME, sorted.
func (p *Principal) Groups() []string {
	return strings.Split(p.identity, "\n")[1:]
}

// Owner identifies the client as the owner of worker IDs. Keys with the same name belong to one
// client, so the client keeps its IDs when its key is replaced.
func (p *Principal) Owner() string { return p.owner }

// withKeyName sets the key name of the principal, and returns p.
func (p *Principal) withKeyName(name string) *Principal {
	p.owner = namedKeyPrefix + name
	return p
}

// View identifies what the principal may see. Principals with the same grants have the same view.
func (p *Principal) View() string { return p.view }

// Grants returns the grants in the form "ROLE PATTERN", sorted.
func (p *Principal) Grants() []string {
	if p.view == "" {
		return nil
	}
	return strings.Split(p.view, "\n")
}

// Can reports whether the principal has a permission in a namespace.
func (p *Principal) Can(permission progressorv1.Permission, namespace string) bool {
	for n := range p.grants {
		if p.grants[n].permissions.has(permission) && process.MatchNamespace(p.grants[n].namespaces, namespace) {
			return true
		}
	}
	return false
}

// Permissions returns the permissions of the principal by the patterns of its namespaces.
func (p *Principal) Permissions() map[string][]progressorv1.Permission {
	sets := map[string]permissions{}
	for n := range p.grants {
		sets[p.grants[n].namespaces] |= p.grants[n].permissions
	}
	all := map[string][]progressorv1.Permission{}
	for pattern, set := range sets {
		all[pattern] = set.list()
	}
	return all
}

// Jobs returns the patterns of the names of jobs that the principal may take as a worker in a
// namespace. The result is nil if the principal may take all tasks, even those of processes that
// are not jobs. It is empty if the principal may take none.
func (p *Principal) Jobs(namespace string) process.Patterns {
	jobs := process.Patterns{}
	for n := range p.grants {
		g := &p.grants[n]
		if !g.permissions.has(progressorv1.Permission_PERMISSION_JOB_WORK) ||
			!process.MatchNamespace(g.namespaces, namespace) {
			continue
		}
		if g.jobs == "" {
			return nil
		}
		jobs = append(jobs, g.jobs)
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// CanEverywhere reports whether the principal has a permission in all namespaces.
func (p *Principal) CanEverywhere(permission progressorv1.Permission) bool {
	return slices.Contains(p.Namespaces(permission), Everywhere)
}

// Namespaces returns the patterns of the namespaces in which the principal has a permission.
func (p *Principal) Namespaces(permission progressorv1.Permission) (patterns process.Patterns) {
	for n := range p.grants {
		if p.grants[n].permissions.has(permission) {
			patterns = append(patterns, p.grants[n].namespaces)
		}
	}
	return patterns
}
