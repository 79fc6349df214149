package storage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/jobs"
)

// Parsed rows of jobs are cached by their text, if it is short. Every text returns its own job.
func TestJobOf(t *testing.T) {
	t.Parallel()
	read := func(text string) *jobs.Job {
		j, err := jobs.JobOf([]byte(text))
		return must(t, j, err)
	}
	short := `{"name": "mail", "options": null, "failures": [1], "takeovers": 2}`
	j := read(short)
	equal(t, "the job", fmt.Sprintf("%s %d %t %s", j.Name, j.Takeovers, j.Options == nil, j.Failures),
		"mail 2 true [1]")
	if read(short) != j {
		t.Error("a short row is parsed twice")
	}
	long := fmt.Sprintf(`{"name": %q}`, strings.Repeat("x", 2000))
	if once, again := read(long), read(long); once == again {
		t.Error("a long row is cached")
	}
	for n := range 3000 {
		name := fmt.Sprint("job-", n)
		equal(t, "name", read(fmt.Sprintf(`{"name": %q}`, name)).Name, name)
	}
	equal(t, "the name of the first", read(short).Name, "mail")
	if j, err := jobs.JobOf(nil); j != nil || err != nil {
		t.Errorf("no job is %v, %v", j, err)
	}
	if _, err := jobs.JobOf([]byte(`{"name": 1}`)); err == nil {
		t.Error("an invalid row is accepted")
	}
}
