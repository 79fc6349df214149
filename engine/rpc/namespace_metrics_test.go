package rpc

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMetricsOfManyNamespaces creates many namespaces before a scrape. Namespaces beyond a limit
// share series, and the series of a deleted namespace disappear.
func TestMetricsOfManyNamespaces(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	service := w.url + "/progressor.v1.NamespaceService/"
	names := func(page string) map[string]int {
		found := map[string]int{}
		for _, m := range regexp.MustCompile(`[{,]namespace="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			found[m[1]]++
		}
		return found
	}
	sizes := map[int]int{} // size of the page by number of namespaces
	for n := range 230 {
		status, body := post(t, service+"PutNamespace", "application/json",
			fmt.Sprintf(`{"namespace":{"namespace":"m-%03d","processor":{"pull":{}}}}`, n))
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		if n == 200 || n == 229 {
			_, page := get(t, w.url+"/metrics", "")
			sizes[n] = len(page)
		}
	}
	_, page := get(t, w.url+"/metrics", "")
	found := names(page)
	// The names are n, 199 other namespaces, (other), and the empty name.
	if len(found) > 202 || found["(other)"] == 0 || found["m-000"] == 0 || found["m-229"] != 0 {
		t.Errorf("%d namespaces have series: (other) %d, the first %d, the last %d", len(found), found["(other)"],
			found["m-000"], found["m-229"])
	}
	if sizes[229] > sizes[200]+sizes[200]/50 {
		t.Errorf("the page grew from %d to %d bytes", sizes[200], sizes[229])
	}
	for _, name := range []string{"progressor_places_taken", "progressor_runnable_tasks",
		"progressor_oldest_available_job_age_seconds"} {
		if !strings.Contains(page, name+`{namespace="(other)"`) {
			t.Errorf("%s has no series for the other namespaces", name)
		}
	}
	status, body := post(t, service+"DeleteNamespace", "application/json", `{"namespace":"m-000"}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	for deadline := time.After(30 * time.Second); ; {
		if _, page := get(t, w.url+"/metrics", ""); names(page)["m-000"] == 0 {
			return
		}
		select {
		case <-deadline:
			t.Fatal("the series of the deleted namespace remain")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
