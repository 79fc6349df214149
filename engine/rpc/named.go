package rpc

import (
	"cmp"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/engine/pull"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// named finds the namespaces in messages of a type, including nested messages and lease tokens. It
// is created once per type.
type named struct {
	fields  []namedField // in the message itself
	targets []namedField // in the message itself, with the option target_needs
	nested  []nestedNamed
}

type namedField struct {
	fd    protoreflect.FieldDescriptor
	lease bool                    // the values are lease tokens
	needs progressorv1.Permission // permission that a target needs
}

type nestedNamed struct {
	fd    protoreflect.FieldDescriptor
	named *named
}

// namesNamespace reports whether the values of a field are names of namespaces or lease tokens.
func namesNamespace(fd protoreflect.FieldDescriptor) (is, lease bool) {
	if fd.Kind() != protoreflect.StringKind || fd.IsMap() {
		return false, false
	}
	switch fd.Name() {
	case "namespace", "namespaces", "command_namespaces":
		return true, false
	case "lease_token", "lease_tokens":
		return true, true
	}
	return false, false
}

// newNamed returns nil if messages of the type contain no namespaces.
func newNamed(md protoreflect.MessageDescriptor) (*named, error) {
	if strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
		return nil, nil
	}
	n := &named{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		needs, _ := proto.GetExtension(fd.Options(), progressorv1.E_TargetNeeds).(progressorv1.Permission)
		switch is, lease := namesNamespace(fd); {
		case is && needs != 0:
			n.targets = append(n.targets, namedField{fd, lease, needs})
		case is:
			n.fields = append(n.fields, namedField{fd: fd, lease: lease})
		case fd.Message() != nil:
			inner, err := newNamed(fd.Message())
			if err != nil {
				return nil, err
			}
			if inner == nil {
				continue
			}
			if fd.IsMap() {
				return nil, fmt.Errorf("%s: a map must not contain namespaces", fd.FullName())
			}
			n.nested = append(n.nested, nestedNamed{fd, inner})
		}
	}
	if len(n.fields)+len(n.targets)+len(n.nested) == 0 {
		return nil, nil
	}
	return n, nil
}

// namedNamespace is a namespace in a message.
type namedNamespace struct {
	name  string
	needs progressorv1.Permission // permission that a target needs; 0 means the permission of the method
	own   bool                    // the target is in the namespace of the message that contains it
}

// each calls found for each namespace in a message until found returns false. own is the namespace
// of the message that contains m. It is the default for targets without a namespace.
func (n *named) each(m protoreflect.Message, own string, found func(namedNamespace) bool) bool {
	for i := range n.fields {
		f := &n.fields[i]
		more := eachString(m, f.fd, func(value string) bool {
			if f.lease {
				var ok bool
				if value, ok = pull.NamespaceOfLease(value); !ok {
					return true
				}
			}
			if value == "" {
				return true
			}
			own = value
			return found(namedNamespace{name: value})
		})
		if !more {
			return false
		}
	}
	for i := range n.targets {
		f := &n.targets[i]
		target := func(name string) bool { return name == "" || found(namedNamespace{name, f.needs, name == own}) }
		if more := f.fd.IsList() && eachString(m, f.fd, target); more {
			continue
		}
		if f.fd.IsList() || !target(cmp.Or(m.Get(f.fd).String(), own)) {
			return false
		}
	}
	for i := range n.nested {
		inner := &n.nested[i]
		if !m.Has(inner.fd) {
			continue
		}
		if !inner.fd.IsList() {
			if !inner.named.each(m.Get(inner.fd).Message(), own, found) {
				return false
			}
			continue
		}
		list := m.Get(inner.fd).List()
		for at := range list.Len() {
			if !inner.named.each(list.Get(at).Message(), own, found) {
				return false
			}
		}
	}
	return true
}

// eachString calls found for each value of a field of strings until found returns false.
func eachString(m protoreflect.Message, fd protoreflect.FieldDescriptor, found func(string) bool) bool {
	if !m.Has(fd) {
		return true
	}
	if !fd.IsList() {
		return found(m.Get(fd).String())
	}
	list := m.Get(fd).List()
	for at := range list.Len() {
		if !found(list.Get(at).String()) {
			return false
		}
	}
	return true
}
