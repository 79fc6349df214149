package rpc

import (
	"context"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/engine/auth"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// shown finds the fields of a type of message that are shown only with a permission: those with the
// option progressor.v1.shown_with. It is created once per type.
type shown struct {
	needs     []progressorv1.Permission // permissions of all fields, also of nested messages
	namespace protoreflect.FieldDescriptor
	fields    []shownField
	nested    []nestedShown
}

type shownField struct {
	fd    protoreflect.FieldDescriptor
	needs progressorv1.Permission
}

type nestedShown struct {
	fd    protoreflect.FieldDescriptor
	shown *shown
}

// newShown returns nil if the type has no such fields.
func newShown(md protoreflect.MessageDescriptor) *shown {
	if strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
		return nil
	}
	s := &shown{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if fd.Name() == "namespace" && fd.Kind() == protoreflect.StringKind {
			s.namespace = fd
		}
		needs, _ := proto.GetExtension(fd.Options(), progressorv1.E_ShownWith).(progressorv1.Permission)
		if needs != 0 {
			s.fields = append(s.fields, shownField{fd, needs})
			s.needs = append(s.needs, needs)
		} else if fd.Message() != nil && !fd.IsMap() {
			if inner := newShown(fd.Message()); inner != nil {
				s.nested = append(s.nested, nestedShown{fd, inner})
				s.needs = append(s.needs, inner.needs...)
			}
		}
	}
	if len(s.needs) == 0 {
		return nil
	}
	return s
}

// all reports whether a principal sees all fields in a namespace, or everywhere if it is "".
func (s *shown) all(p *auth.Principal, namespace string) bool {
	for _, needs := range s.needs {
		if namespace == "" && !p.CanEverywhere(needs) || namespace != "" && !p.Can(needs, namespace) {
			return false
		}
	}
	return true
}

// hide clears the fields that a principal may not see. namespace is that of the message around m.
func (s *shown) hide(m protoreflect.Message, p *auth.Principal, namespace string) {
	if s.namespace != nil {
		if own := m.Get(s.namespace).String(); own != "" {
			namespace = own
		}
	}
	for _, f := range s.fields {
		if !p.Can(f.needs, namespace) {
			m.Clear(f.fd)
		}
	}
	for _, n := range s.nested {
		switch {
		case !m.Has(n.fd):
		case n.fd.IsList():
			list := m.Get(n.fd).List()
			for at := range list.Len() {
				n.shown.hide(list.Get(at).Message(), p, namespace)
			}
		default:
			n.shown.hide(m.Get(n.fd).Message(), p, namespace)
		}
	}
}

// shown returns a message of a response without what the principal may not see.
func (a access) shown(message any) any {
	m, ok := message.(proto.Message)
	if a.rule == nil || a.rule.shown == nil || !ok || a.rule.shown.all(a.principal, a.namespace) {
		return message
	}
	m = proto.Clone(m) // the engine may share it
	a.rule.shown.hide(m.ProtoReflect(), a.principal, a.namespace)
	return m
}

// handler returns a handler that hides from its responses what the principal may not see.
func (a access) handler(next connect.UnaryFunc) connect.UnaryFunc {
	if a.rule == nil || a.rule.shown == nil {
		return next
	}
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		response, err := next(ctx, request)
		if err != nil || response == nil {
			return response, err
		}
		return shownResponse{response, a.shown(response.Any())}, nil
	}
}

// shownResponse is a response with another message.
type shownResponse struct {
	connect.AnyResponse
	message any
}

// Any returns the message.
func (r shownResponse) Any() any { return r.message }
