package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// docs/reference.md contains every method, every field and every value of an enum. make verify
// compares the checksum of this generated page, so that it contains nothing else.
func TestReferenceIsComplete(t *testing.T) {
	text, err := os.ReadFile("reference.md")
	if err != nil {
		t.Fatal(err)
	}
	page, rowCount := string(text), 0
	need := func(heading string, rows ...string) {
		t.Helper()
		_, section, found := strings.Cut(page, "\n### "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		if !found {
			t.Errorf("there is no section %s", heading)
		}
		for _, row := range rows {
			rowCount++
			if !strings.Contains(section, "\n| `"+row+"` |") {
				t.Errorf("section %s has no row %s", heading, row)
			}
		}
	}
	documented := map[protoreflect.FullName]bool{} // messages that the sections of methods include
	eachFile(func(file protoreflect.FileDescriptor) {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				need(fmt.Sprintf("%s.%s", service.Name(), method.Name()),
					append(fieldsOf(method.Input()), fieldsOf(method.Output())...)...)
				documented[method.Input().FullName()], documented[method.Output().FullName()] = true, true
			}
		}
	})
	var message func(protoreflect.MessageDescriptor)
	enums := func(all protoreflect.EnumDescriptors) {
		for i := range all.Len() {
			var rows []string
			for j := range all.Get(i).Values().Len() {
				rows = append(rows, string(all.Get(i).Values().Get(j).Name()))
			}
			need(titleOf(all.Get(i)), rows...)
		}
	}
	message = func(m protoreflect.MessageDescriptor) {
		if !m.IsMapEntry() && !documented[m.FullName()] {
			need(titleOf(m), fieldsOf(m)...)
		}
		enums(m.Enums())
		for i := range m.Messages().Len() {
			message(m.Messages().Get(i))
		}
	}
	eachFile(func(file protoreflect.FileDescriptor) {
		enums(file.Enums())
		for i := range file.Messages().Len() {
			message(file.Messages().Get(i))
		}
	})
	if rowCount < 500 {
		t.Errorf("the test has checked only %d rows", rowCount)
	}
}

// docs/api.md has a section for each service, and names each method and every error reason.
func TestAPIPageIsComplete(t *testing.T) {
	text, err := os.ReadFile("api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	eachFile(func(file protoreflect.FileDescriptor) {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			_, part, found := strings.Cut(page, "\n## "+string(service.Name())+"\n")
			part, _, _ = strings.Cut(part, "\n## ")
			if !found {
				t.Errorf("docs/api.md has no section %s", service.Name())
			}
			for j := range service.Methods().Len() {
				name := string(service.Methods().Get(j).Name())
				if !regexp.MustCompile(`\b` + name + `\b`).MatchString(part) {
					t.Errorf("docs/api.md: section %s does not name %s", service.Name(), name)
				}
			}
		}
	})
	for name, number := range progressorv1.ErrorDetail_Reason_value {
		if number != 0 && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/api.md does not list %s", name)
		}
	}
}

func eachFile(do func(protoreflect.FileDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(file protoreflect.FileDescriptor) bool {
		do(file)
		return true
	})
}

func titleOf(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "progressor.v1.")
}

func fieldsOf(m protoreflect.MessageDescriptor) (names []string) {
	for i := range m.Fields().Len() {
		names = append(names, string(m.Fields().Get(i).Name()))
	}
	return names
}
