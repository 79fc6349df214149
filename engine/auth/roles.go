package auth

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// RoleRoot is the role that may do everything.
	RoleRoot = "root"
	// roleWorker is the only role that can be limited to some jobs.
	roleWorker = "worker"
	// limitSeparator separates the role from the pattern of the jobs.
	limitSeparator = ":"
	// maxJobs is the maximum size of a job pattern in bytes. Names of jobs have the same limit.
	maxJobs = 256
)

// validJobs reports whether a pattern of names of jobs is well-formed. Names may have any printable
// characters, so only a * at the end is a wildcard.
func validJobs(pattern string) bool {
	return pattern != "" && len(pattern) <= maxJobs && utf8.ValidString(pattern) &&
		!strings.ContainsFunc(pattern, unicode.IsControl)
}

// permissions is a set of permissions.
type permissions uint64

func setOf(list ...progressorv1.Permission) (s permissions) {
	for _, p := range list {
		s |= 1 << p
	}
	return s
}

func (s permissions) has(p progressorv1.Permission) bool { return s&(1<<p) != 0 }

// list returns the permissions in the set.
func (s permissions) list() (list []progressorv1.Permission) {
	for number := range progressorv1.Permission_name {
		if p := progressorv1.Permission(number); p != 0 && s.has(p) {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

// The permissions of each role.
var (
	viewer = setOf(progressorv1.Permission_PERMISSION_PROCESS_READ, progressorv1.Permission_PERMISSION_PAYLOAD_READ,
		progressorv1.Permission_PERMISSION_NAMESPACE_READ)
	support = setOf(progressorv1.Permission_PERMISSION_PROCESS_READ, progressorv1.Permission_PERMISSION_NAMESPACE_READ,
		progressorv1.Permission_PERMISSION_PROCESS_OPERATE, progressorv1.Permission_PERMISSION_WAIT_ANSWER)
	client = setOf(progressorv1.Permission_PERMISSION_PROCESS_READ, progressorv1.Permission_PERMISSION_PAYLOAD_READ,
		progressorv1.Permission_PERMISSION_PROCESS_CALL, progressorv1.Permission_PERMISSION_JOB_ENQUEUE,
		progressorv1.Permission_PERMISSION_WAIT_ANSWER)
	worker = setOf(progressorv1.Permission_PERMISSION_JOB_WORK)
	author = client | setOf(progressorv1.Permission_PERMISSION_CRON_WRITE,
		progressorv1.Permission_PERMISSION_FLOW_WRITE)
	root  = ^permissions(0)
	admin = root &^ setOf(progressorv1.Permission_PERMISSION_NODE_OPERATE,
		progressorv1.Permission_PERMISSION_AUTH_ADMIN)
)

// roles contains all roles in the order in which they are listed to users.
var roles = []struct {
	name string
	set  permissions
}{
	{"viewer", viewer}, {"support", support}, {"client", client}, {roleWorker, worker}, {"author", author},
	{"admin", admin}, {RoleRoot, root},
}

// Roles returns the names of the roles.
func Roles() []string {
	names := make([]string, len(roles))
	for n := range roles {
		names[n] = roles[n].name
	}
	return names
}

// RolesWith returns the roles that have a permission.
func RolesWith(p progressorv1.Permission) (names []string) {
	for n := range roles {
		if roles[n].set.has(p) {
			names = append(names, roles[n].name)
		}
	}
	return names
}

// permissionsOf returns the permissions of a role. Unknown roles, such as those of a newer version,
// and roles with a limit that they do not support have no permissions.
func permissionsOf(role string) permissions {
	name, jobs, limited := strings.Cut(role, limitSeparator)
	n := slices.Index(Roles(), name)
	if n < 0 || limited && (name != roleWorker || !validJobs(jobs)) {
		return 0
	}
	return roles[n].set
}

// PermissionName returns the name of a permission as users see it, such as process.call.
func PermissionName(p progressorv1.Permission) string {
	name := strings.ToLower(strings.TrimPrefix(p.String(), "PERMISSION_"))
	return strings.Replace(name, "_", ".", 1)
}
