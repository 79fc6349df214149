package main

import (
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	_ "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// apiOfFiles returns the proto files of this program as the plugin gets them.
func apiOfFiles(t *testing.T) *api {
	t.Helper()
	request := &pluginpb.CodeGeneratorRequest{}
	added := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if added[file.Path()] {
			return
		}
		added[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(file))
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(file protoreflect.FileDescriptor) bool {
		add(file)
		request.FileToGenerate = append(request.FileToGenerate, file.Path())
		return true
	})
	for _, file := range request.GetProtoFile() { // the paths of Go packages, which the files do not have
		if file.GetOptions().GetGoPackage() == "" {
			if file.Options == nil {
				file.Options = &descriptorpb.FileOptions{}
			}
			file.Options.GoPackage = proto.String("example.com/" + file.GetPackage())
		}
	}
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		t.Fatal(err)
	}
	return newAPI(plugin.Files)
}

// The Python SDK can compute the name of each field from its name in JSON.
func TestFieldNames(t *testing.T) {
	a := apiOfFiles(t)
	if len(a.messages) < 100 || len(a.services) < 10 {
		t.Fatalf("%d messages, %d services", len(a.messages), len(a.services))
	}
	for _, message := range a.messages {
		for _, field := range message.Fields {
			if got := snakeCase(field.Desc.JSONName()); got != string(field.Desc.Name()) {
				t.Errorf("%s: the JSON name %s becomes %s", field.Desc.FullName(), field.Desc.JSONName(), got)
			}
		}
	}
}

// Reads are retried, requests with a key are retried with the same key, and all others are sent
// once.
func TestRepeats(t *testing.T) {
	got := map[string]string{}
	for _, service := range apiOfFiles(t).services {
		for _, method := range methods(service) {
			got[method.GoName] = repeats(method)
		}
	}
	for name, want := range map[string]string{
		"GetProcess": sentAgain, "ListJobs": sentAgain, "AwaitTask": sentAgain, "Heartbeat": sentAgain,
		"Start": sentByKey, "Call": sentByKey, "Repair": sentByKey, "Enqueue": sentByKey, "StartRun": sentByKey,
		"CancelProcess": sentOnce, "PutNamespace": sentOnce, "Poll": sentOnce, "FetchResult": sentOnce,
		"WatchProcess": "", "Process": "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}
