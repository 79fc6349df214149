package rpc

import (
	"cmp"
	"context"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// shown finds the fields in messages of a type that have the option progressor.v1.shown_with. They
// are shown only with a permission. It is created once per type.
type shown struct {
	needs     []progressorv1.Permission // permissions of all fields, including nested messages
	namespace protoreflect.FieldDescriptor
	process   protoreflect.FieldDescriptor // the ID of a process
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

// newShown returns nil if messages of the type have no fields with the option shown_with.
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
		if fd.Name() == "process_id" && fd.Kind() == protoreflect.StringKind {
			s.process = fd
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
	if s.process != nil {
		s.needs = append(s.needs, ownPayload(process.CronPrefix), ownPayload(process.FlowPrefix))
	}
	return s
}

// ownPayload returns the permission that a client needs, in addition to payload.read, to read the
// payloads of an engine process. It returns 0 if none is needed. The states and tasks of crons and
// cron runs contain HTTP headers. Those of flow runs contain wait tokens.
func ownPayload(processID string) progressorv1.Permission {
	switch {
	case strings.HasPrefix(processID, process.CronPrefix), strings.HasPrefix(processID, process.CronRunPrefix):
		return progressorv1.Permission_PERMISSION_CRON_WRITE
	case strings.HasPrefix(processID, process.FlowPrefix):
		return progressorv1.Permission_PERMISSION_WAIT_ANSWER
	}
	return 0
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

// part identifies the namespace and the process to which a part of a response belongs.
type part struct{ namespace, processID string }

// mayShow reports whether a principal may see a field that needs a permission.
func (at part) mayShow(p *auth.Principal, needs progressorv1.Permission) bool {
	if !p.Can(needs, at.namespace) {
		return false
	}
	own := ownPayload(at.processID)
	return own == 0 || needs != progressorv1.Permission_PERMISSION_PAYLOAD_READ || p.Can(own, at.namespace)
}

// showsPayloads reports whether the client of a request may see the payloads of a process.
func showsPayloads(ctx context.Context, key process.Key) bool {
	p := principalOf(ctx)
	return p == nil || part{key.Namespace, key.ProcessID}.mayShow(p, progressorv1.Permission_PERMISSION_PAYLOAD_READ)
}

// each calls hidden for each field that is set and that a principal may not see, until hidden
// returns false. at is the part of the message that contains m.
func (s *shown) each(
	m protoreflect.Message, p *auth.Principal, at part,
	hidden func(protoreflect.Message, protoreflect.FieldDescriptor) bool,
) bool {
	if s.namespace != nil {
		at.namespace = cmp.Or(m.Get(s.namespace).String(), at.namespace)
	}
	if s.process != nil {
		at.processID = cmp.Or(m.Get(s.process).String(), at.processID)
	}
	for _, f := range s.fields {
		if m.Has(f.fd) && !at.mayShow(p, f.needs) && !hidden(m, f.fd) {
			return false
		}
	}
	for _, n := range s.nested {
		switch {
		case !m.Has(n.fd):
		case n.fd.IsList():
			list := m.Get(n.fd).List()
			for i := range list.Len() {
				if !n.shown.each(list.Get(i).Message(), p, at, hidden) {
					return false
				}
			}
		case !n.shown.each(m.Get(n.fd).Message(), p, at, hidden):
			return false
		}
	}
	return true
}

// shown returns a message of a response without the fields that the principal may not see.
func (a access) shown(message any) any {
	m, ok := message.(proto.Message)
	if a.rule == nil || a.rule.shown == nil || !ok || a.rule.shown.all(a.principal, a.part.namespace) {
		return message
	}
	all := func(protoreflect.Message, protoreflect.FieldDescriptor) bool { return false }
	if a.rule.shown.each(m.ProtoReflect(), a.principal, a.part, all) {
		return message
	}
	m = proto.Clone(m) // the engine may share it
	a.rule.shown.each(m.ProtoReflect(), a.principal, a.part,
		func(m protoreflect.Message, fd protoreflect.FieldDescriptor) bool {
			m.Clear(fd)
			return true
		})
	return m
}

// handler returns a handler that removes from its responses the fields that the principal may not
// see.
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
