package main

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// api contains the declarations that the SDKs need, in the order of the proto files.
type api struct {
	services []*protogen.Service
	messages []*protogen.Message
	enums    []*protogen.Enum
}

// implemented is the service that users implement. The engine does not serve it.
const implemented = "ProcessorService"

func newAPI(files []*protogen.File) *api {
	a := &api{}
	for _, file := range files {
		if !file.Generate {
			continue
		}
		for _, service := range file.Services {
			if service.GoName != implemented {
				a.services = append(a.services, service)
			}
		}
		a.enums = append(a.enums, file.Enums...)
		for _, message := range file.Messages {
			a.add(message)
		}
	}
	return a
}

// add adds a message, and the messages and enums that are declared in it.
func (a *api) add(message *protogen.Message) {
	if message.Desc.IsMapEntry() {
		return
	}
	a.messages = append(a.messages, message)
	a.enums = append(a.enums, message.Enums...)
	for _, nested := range message.Messages {
		a.add(nested)
	}
}

// methods returns the methods that take one request and return one response.
func methods(service *protogen.Service) []*protogen.Method {
	return slices.DeleteFunc(slices.Clone(service.Methods), func(m *protogen.Method) bool {
		return m.Desc.IsStreamingServer() || m.Desc.IsStreamingClient()
	})
}

// These values state whether a request may be sent again after its response was lost.
const (
	sentOnce  = "once"
	sentByKey = "key"    // if it has an idempotency key
	sentAgain = "always" // it reads, or sending it twice has no effect
)

// repeatable contains the methods that may be sent again although they change something.
var repeatable = []string{"Heartbeat", "Checkpoint", "Complete", "CompleteBatch", "Release"}

func repeats(method *protogen.Method) string {
	name := method.GoName
	for _, read := range []string{"Get", "List", "Count", "Explain", "Trace", "Preview", "Await"} {
		if strings.HasPrefix(name, read) {
			return sentAgain
		}
	}
	switch {
	case slices.Contains(repeatable, name):
		return sentAgain
	case method.Input.Desc.Fields().ByName("idempotency_key") != nil:
		return sentByKey
	default:
		return sentOnce
	}
}

// typeName returns the name of a message or an enum. A nested one has the name of the outer one as
// prefix.
func typeName(d protoreflect.Descriptor) string {
	name := strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
	return strings.ReplaceAll(name, ".", "")
}

// wellKnown contains the messages that are not objects in JSON, or that hold any JSON.
var wellKnown = map[protoreflect.FullName]string{
	"google.protobuf.Duration": "Duration", "google.protobuf.Timestamp": "Timestamp",
	"google.protobuf.Struct": "JsonObject", "google.protobuf.Value": "Json",
	"google.protobuf.FieldMask": "string",
}

// conversion returns how the JSON of a field differs from what users of an SDK see: "bytes",
// "int64", or the name of a message whose fields are converted. Braces mark a map. It is "" if
// there is no difference.
func conversion(field *protogen.Field) string {
	if field.Desc.IsMap() {
		if value := conversion(field.Message.Fields[1]); value != "" {
			return "{" + value + "}"
		}
		return ""
	}
	switch kind := field.Desc.Kind(); {
	case kind == protoreflect.BytesKind:
		return "bytes"
	case kind == protoreflect.Int64Kind || kind == protoreflect.Uint64Kind:
		return "int64"
	case field.Message != nil && wellKnown[field.Message.Desc.FullName()] == "":
		return typeName(field.Message.Desc)
	default:
		return ""
	}
}

// comment returns the lines of the comments before and after a declaration.
func comment(comments protogen.CommentSet) []string {
	var lines []string
	for _, text := range []protogen.Comments{comments.Leading, comments.Trailing} {
		if block := strings.TrimSpace(string(text)); block != "" {
			for line := range strings.SplitSeq(block, "\n") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}
