package docs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/progressor-engine/progressor/docs"
	_ "github.com/progressor-engine/progressor/proto/progressor/v1" // the API
)

type media map[string]struct {
	Schema map[string]any
}

type operation struct {
	OperationID string `yaml:"operationId"`
	Parameters  []struct {
		Name     string
		Required bool
	}
	RequestBody struct{ Content media } `yaml:"requestBody"`
	Responses   map[string]struct{ Content media }
}

type document struct {
	OpenAPI string
	Paths   map[string]struct {
		Post    *operation
		Servers []any
	}
	Components struct{ Schemas map[string]any }
}

func read(t *testing.T) (document, any) {
	t.Helper()
	var d document
	var tree any
	for _, into := range []any{&d, &tree} {
		if err := yaml.Unmarshal(docs.OpenAPI, into); err != nil {
			t.Fatal(err)
		}
	}
	return d, tree
}

// TestEveryMethodIsDocumented checks that each method of every service has an operation with its
// request and its response.
func TestEveryMethodIsDocumented(t *testing.T) {
	d, _ := read(t)
	if d.OpenAPI != "3.1.0" {
		t.Errorf("openapi: %s", d.OpenAPI)
	}
	services, methods := 0, 0
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			services++
			for j := range service.Methods().Len() {
				methods++
				checkMethod(t, d, service.Methods().Get(j))
			}
		}
		return true
	})
	if services < 10 || methods != len(d.Paths) {
		t.Errorf("%d services with %d methods, and %d paths", services, methods, len(d.Paths))
	}
}

func checkMethod(t *testing.T, d document, method protoreflect.MethodDescriptor) {
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	item := d.Paths[path]
	if item.Post == nil {
		t.Errorf("%s is not documented", path)
		return
	}
	types := []string{"application/json", "application/msgpack"}
	if method.IsStreamingServer() {
		types = []string{"application/connect+json", "application/connect+proto"}
	}
	for _, contentType := range types {
		for name, in := range map[string]struct {
			content media
			schema  string
		}{
			"request": {item.Post.RequestBody.Content, string(method.Input().FullName())},
			"answer":  {item.Post.Responses["200"].Content, string(method.Output().FullName())},
			"error":   {item.Post.Responses["default"].Content, "connect.error"},
		} {
			if got := in.content[contentType].Schema["$ref"]; got != "#/components/schemas/"+in.schema {
				t.Errorf("%s: the %s in %s is %v, want %s", path, name, contentType, got, in.schema)
			}
		}
	}
	if _, msgpack := item.Post.RequestBody.Content["application/msgpack"]; msgpack == method.IsStreamingServer() {
		t.Errorf("%s: MessagePack in the request: %v", path, msgpack)
	}
	for _, parameter := range item.Post.Parameters {
		if parameter.Required {
			t.Errorf("%s: parameter %s is required, want optional", path, parameter.Name)
		}
	}
	if own := strings.Contains(path, "ProcessorService"); own != (len(item.Servers) > 0) {
		t.Errorf("%s: servers %v", path, item.Servers)
	}
}

// TestEveryReferenceResolves checks that the target of each $ref exists, and that the document can
// be converted to JSON.
func TestEveryReferenceResolves(t *testing.T) {
	_, tree := read(t)
	references := 0
	var look func(path string, v any)
	look = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				references++
				if !resolves(tree, ref) {
					t.Errorf("%s: the target of %s does not exist", path, ref)
				}
			}
			for key, child := range v {
				look(path+"/"+key, child)
			}
		case []any:
			for i, child := range v {
				look(fmt.Sprintf("%s/%d", path, i), child)
			}
		}
	}
	look("#", tree)
	if references < 500 {
		t.Errorf("%d references", references)
	}
	if _, err := json.Marshal(tree); err != nil {
		t.Error(err)
	}
}

func resolves(tree any, ref string) bool {
	path, local := strings.CutPrefix(ref, "#/")
	if !local {
		return false
	}
	for step := range strings.SplitSeq(path, "/") {
		at, _ := tree.(map[string]any)
		if tree = at[step]; tree == nil {
			return false
		}
	}
	return true
}

// TestSchemas checks the schemas of a bytes field and of a duration.
func TestSchemas(t *testing.T) {
	d, _ := read(t)
	call := d.Components.Schemas["progressor.v1.CallRequest"].(map[string]any)
	args := call["properties"].(map[string]any)["args"].(map[string]any)
	if args["contentEncoding"] != "base64" || args["maxLength"] != (1048576+2)/3*4 || args["description"] != nil {
		t.Errorf("args: %v", args)
	}
	duration := d.Components.Schemas["google.protobuf.Duration"].(map[string]any)
	if duration["pattern"] != `^-?[0-9]+(\.[0-9]{1,9})?s$` || duration["format"] != nil {
		t.Errorf("duration: %v", duration)
	}
}
