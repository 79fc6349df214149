package rpc

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// leaseIn returns a lease token of a namespace.
func leaseIn(namespace string) string {
	token := append([]byte{byte(len(namespace))}, namespace...)
	token = append(token, make([]byte, 8)...)
	return base64.RawURLEncoding.EncodeToString(append(append(token, make([]byte, 16)...), "p"...))
}

// fieldPath is the path of a field in a message.
type fieldPath []protoreflect.FieldDescriptor

func (p fieldPath) String() string {
	names := make([]string, len(p))
	for n, fd := range p {
		names[n] = string(fd.Name())
	}
	return strings.Join(names, ".")
}

// eachField calls look with the path of every field of a message type, including the fields of
// nested messages.
func eachField(md protoreflect.MessageDescriptor, path fieldPath, look func(fieldPath)) {
	if strings.HasPrefix(string(md.FullName()), "google.protobuf.") || len(path) > 12 {
		return
	}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		way := append(slices.Clone(path), fd)
		look(way)
		switch {
		case fd.IsMap() && fd.MapValue().Message() != nil:
			eachField(fd.MapValue().Message(), way, look)
		case !fd.IsMap() && fd.Message() != nil:
			eachField(fd.Message(), way, look)
		}
	}
}

// set sets the field at path p of m to text, and creates the messages that contain the field.
func (p fieldPath) set(t *testing.T, m protoreflect.Message, text string) {
	t.Helper()
	for _, fd := range p[:len(p)-1] {
		switch {
		case fd.IsMap():
			t.Fatalf("%s is in a map, which is not checked", p)
		case fd.IsList():
			list := m.Mutable(fd).List()
			if list.Len() == 0 {
				list.AppendMutable()
			}
			m = list.Get(0).Message()
		default:
			m = m.Mutable(fd).Message()
		}
	}
	if fd := p[len(p)-1]; fd.IsList() {
		m.Mutable(fd).List().Append(protoreflect.ValueOfString(text))
	} else {
		m.Set(fd, protoreflect.ValueOfString(text))
	}
}

// newRequest returns a valid request of a method in a namespace.
func newRequest(t *testing.T, md protoreflect.MessageDescriptor, namespace string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(md)
	if md.FullName() == valueName {
		m.Set(md.Fields().ByName("bool_value"), protoreflect.ValueOfBool(true))
	}
	for i := range md.Oneofs().Len() {
		oneof := md.Oneofs().Get(i)
		rules, err := protovalidate.ResolveOneofRules(oneof)
		if err == nil && rules.GetRequired() {
			setField(t, m, oneof.Fields().Get(0), namespace, nil)
		}
	}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		rules, err := protovalidate.ResolveFieldRules(fd)
		if err != nil {
			t.Fatal(err)
		}
		is, _ := namesNamespace(fd)
		target := proto.GetExtension(fd.Options(), progressorv1.E_TargetNeeds).(progressorv1.Permission)
		s, enum, inner := rules.GetString(), rules.GetEnum(), false
		if fd.Message() != nil && !fd.IsMap() {
			found, err := newNamed(fd.Message())
			inner = err == nil && found != nil
		}
		switch {
		case is && target == 0, rules.GetRequired(), rules.GetRepeated().GetMinItems() > 0,
			len(enum.GetIn())+len(enum.GetNotIn()) > 0 && !fd.IsList(),
			fd.ContainingOneof() == nil &&
				(inner || s.GetMinBytes() > 0 || s.GetPattern() != "" && rules.GetIgnore() == 0):
			setField(t, m, fd, namespace, enum)
		}
	}
	return m
}

// setField sets a field to a valid value.
func setField(
	t *testing.T, m *dynamicpb.Message, fd protoreflect.FieldDescriptor, namespace string, enum *validate.EnumRules,
) {
	t.Helper()
	var value protoreflect.Value
	is, lease := namesNamespace(fd)
	rules, err := protovalidate.ResolveFieldRules(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case fd.Message() != nil && !fd.IsMap():
		value = protoreflect.ValueOfMessage(newRequest(t, fd.Message(), namespace))
	case lease:
		value = protoreflect.ValueOfString(leaseIn(namespace))
	case is:
		value = protoreflect.ValueOfString(namespace)
	case fd.Kind() == protoreflect.StringKind && strings.HasPrefix(rules.GetString().GetPattern(), "^https"):
		value = protoreflect.ValueOfString("http://x")
	case fd.Kind() == protoreflect.StringKind:
		value = protoreflect.ValueOfString("x")
	case fd.Kind() == protoreflect.EnumKind && len(enum.GetIn()) > 0:
		value = protoreflect.ValueOfEnum(protoreflect.EnumNumber(enum.GetIn()[0]))
	case fd.Kind() == protoreflect.EnumKind:
		value = protoreflect.ValueOfEnum(1)
	case fd.Kind() == protoreflect.Int64Kind:
		value = protoreflect.ValueOfInt64(1)
	default:
		t.Fatalf("%s: no valid value of kind %s is known", fd.FullName(), fd.Kind())
	}
	if fd.IsList() {
		m.Mutable(fd).List().Append(value)
		return
	}
	m.Set(fd, value)
}

// posted sends a request with the Connect protocol. It returns the HTTP status and the body of the
// response.
func posted(t *testing.T, url, token string, stream bool, m proto.Message) string {
	t.Helper()
	body, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	contentType := "application/json"
	if stream {
		contentType = "application/connect+json"
		size := len(body)
		body = append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, body...)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status + " " + string(text)
}
