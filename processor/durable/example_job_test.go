package durable_test

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type Album struct {
	Pictures []string `json:"pictures"`
}

type Gallery struct {
	Previews []string `json:"previews"`
	Failed   []string `json:"failed,omitempty"`
}

// gallery lets workers resize the pictures of an album, at most 20 at a time. A picture that fails
// three times is left out.
func gallery(ctx durable.Ctx, in Album) (Gallery, error) {
	var out Gallery
	previews, err := durable.Each(ctx, "picture", in.Pictures, func(ctx durable.Ctx, picture string) (string, error) {
		preview, err := durable.Job[string](ctx, "resize", picture, durable.In("images"),
			durable.JobOptions(&progressorv1.JobOptions{MaxRetry: 2, Timeout: durationpb.New(time.Minute)})).Get()
		if failed, ok := errors.AsType[*durable.StepError](err); ok && failed.Reason == durable.ReasonChildFailed {
			return "", nil
		}
		return preview, err
	}, durable.Limit(20))
	for i, preview := range previews {
		if preview == "" {
			out.Failed = append(out.Failed, in.Pictures[i])
		} else {
			out.Previews = append(out.Previews, preview)
		}
	}
	return out, err
}

// Wherever the function is killed, its jobs are enqueued and cancelled once.
func TestGallery(t *testing.T) {
	for name, script := range map[string][]durabletest.Action{
		"resized": {durabletest.EndChild("picture[1]/resize", "b"), durabletest.EndChild("picture[0]/resize", "a")},
		"broken":  {durabletest.FailChild("picture[0]/resize", "odd"), durabletest.EndChild("picture[1]/resize", "b")},
		"no more": {durabletest.EndChild("picture[1]/resize", "b"), durabletest.Cancel("no more")},
	} {
		t.Run(name, func(t *testing.T) {
			durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
				return durable.Func("gallery", gallery)
			}, Album{Pictures: []string{"a.png", "b.png"}}, script...)
		})
	}
}

// docs/functions.md contains the code unchanged.
func TestGalleryInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	code, errCode := os.ReadFile("example_job_test.go")
	if err := cmp.Or(err, errCode); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(code), "\nfunc gallery(")
	text, _, found := strings.Cut(text, "\n}\n")
	if !found || !strings.Contains(string(page), "```go\nfunc gallery("+text+"\n}\n```") {
		t.Error("docs/functions.md does not contain the function gallery")
	}
}
