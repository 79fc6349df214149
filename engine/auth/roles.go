package auth

import (
	"slices"
	"strings"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// RoleRoot is the role that may do everything.
const RoleRoot = "root"

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

// The sets of the roles.
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
	admin = root &^ setOf(progressorv1.Permission_PERMISSION_NODE_OPERATE)
)

// roles are the roles, those with the fewest permissions first.
var roles = []struct {
	name string
	set  permissions
}{
	{"viewer", viewer}, {"support", support}, {"client", client}, {"worker", worker}, {"author", author},
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

// permissionsOf returns the permissions of a role. An unknown role, such as one of a newer version,
// has none.
func permissionsOf(role string) permissions {
	n := slices.Index(Roles(), role)
	if n < 0 {
		return 0
	}
	return roles[n].set
}

// PermissionName returns the name of a permission in texts, such as process.call.
func PermissionName(p progressorv1.Permission) string {
	name := strings.ToLower(strings.TrimPrefix(p.String(), "PERMISSION_"))
	return strings.Replace(name, "_", ".", 1)
}
