package rpc

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// eachMethod calls look with every method of the API, except those of ProcessorService, which users
// implement.
func eachMethod(t *testing.T, look func(service, method protoreflect.Descriptor)) {
	t.Helper()
	looked := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			if service.Name() == "ProcessorService" {
				continue
			}
			for j := range service.Methods().Len() {
				looked++
				look(service, service.Methods().Get(j))
			}
		}
		return true
	})
	if looked < 80 {
		t.Errorf("found only %d methods", looked)
	}
}

// changing contains the first words in the names of methods that change something. A browser cannot
// call them if the console is read-only.
var changing = []string{"Add", "Backfill", "Call", "Cancel", "Checkpoint", "Complete", "Create", "Delete", "Disable",
	"Drain", "Enable", "End", "Enqueue", "Erase", "Fetch", "Heartbeat", "Pause", "Poll", "Put", "Release", "Remove",
	"Repair", "Repeat", "Report", "Rerun", "Restart", "Resume", "Retry", "Revoke", "Rewind", "Rotate", "Skip", "Start",
	"Stop", "Suspend", "Trigger", "Update"}

// Every service is served, and every method is either a read or a change. The read-only console,
// cached reads and traces depend on this. The name of a new method must begin with a word of isRead
// or of changing.
func TestMethodsAreReadsOrChanges(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	eachMethod(t, func(service, method protoreflect.Descriptor) {
		names[string(method.Name())] = true
		if !slices.Contains(services, string(service.FullName())) {
			t.Errorf("%s is not served", service.FullName())
		}
		changes := slices.ContainsFunc(changing, func(verb string) bool {
			rest, ok := strings.CutPrefix(string(method.Name()), verb)
			return ok && (rest == "" || rest[0] <= 'Z')
		})
		if read := isRead("/" + string(service.FullName()) + "/" + string(method.Name())); read == changes {
			t.Errorf("%s: read %v, change %v", method.FullName(), read, changes)
		}
	})
	for name := range sharedCost {
		if !names[name] || !isRead("/"+name) {
			t.Errorf("%s has a cost, but is not a read", name)
		}
	}
}

// extraFields are the fields, besides namespace and process_id, without which a request for a
// process is not valid.
var extraFields = map[string]string{"Repair": `,"simple":{}`, "AwaitTask": `,"taskId":1`,
	"PutProcess": `,"status":"PROCESS_STATUS_RUNNING"`}

// A request for a process of the engine itself is rejected, unless it only reads the process.
func TestIDsOfTheEngineAreOnlyRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, &processes{})
	eachMethod(t, func(service, d protoreflect.Descriptor) {
		method, path := d.(protoreflect.MethodDescriptor), "/"+string(service.FullName())+"/"+string(d.Name())
		if method.Input().Fields().ByName("process_id") == nil || isRead(path) && d.Name() != "AwaitTask" {
			return
		}
		status, body := post(t, s.url+path, "application/json",
			`{"namespace":"n","processId":"~cron/x"`+extraFields[string(d.Name())]+`}`)
		if status != http.StatusBadRequest || !strings.Contains(body, `"field":"process_id"`) ||
			!strings.Contains(body, "~") {
			t.Errorf("%s: got %d %s", d.Name(), status, body)
		}
	})
}
