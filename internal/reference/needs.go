package main

import (
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// needsName is the option with the permission that a method needs. This program does not import the
// generated code, which may not exist yet, so the option is an unknown field.
const needsName = "progressor.v1.needs"

// needsOf returns the permission that a method needs, as text. It returns "" if the method does not
// state one.
func (p *page) needsOf(method *protogen.Method) string {
	for _, file := range p.files {
		for _, option := range file.Extensions {
			if option.Desc.FullName() != needsName {
				continue
			}
			value := unknownField(method.Desc.Options(), option.Desc.Number())
			needs := dynamicpb.NewMessage(option.Message.Desc)
			if value == nil || proto.Unmarshal(value, needs) != nil {
				return ""
			}
			return needsText(needs)
		}
	}
	return ""
}

// unknownField returns the last value of a bytes field that the type of m does not have, or nil.
func unknownField(m proto.Message, number protoreflect.FieldNumber) (value []byte) {
	for raw := m.ProtoReflect().GetUnknown(); len(raw) > 0; {
		found, typ, n := protowire.ConsumeField(raw)
		if n < 0 {
			return nil
		}
		if found == number && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(raw)
			value, _ = protowire.ConsumeBytes(raw[tag:])
		}
		raw = raw[n:]
	}
	return value
}

func needsText(needs protoreflect.Message) string {
	name := func(field, prefix string) string {
		fd := needs.Descriptor().Fields().ByName(protoreflect.Name(field))
		value := fd.Enum().Values().ByNumber(needs.Get(fd).Enum())
		if value == nil || value.Number() == 0 {
			return ""
		}
		return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
	}
	permission := func(field string) string {
		return strings.Replace(name(field, "PERMISSION_"), "_", ".", 1)
	}
	text := "`" + permission("permission") + "`"
	if or := permission("or"); or != "" {
		text += " or `" + or + "`"
	}
	switch name("scope", "SCOPE_") {
	case "engine":
		text += " in all namespaces"
	case "visible":
		text += " in the namespace; a request without a namespace covers all namespaces in which the client has it"
	case "named":
		text += " in each namespace that the request names, including those in lease tokens"
	default:
		text += " in the namespace"
	}
	return text
}
