package main

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// fileCron is a cron of the configuration file.
type fileCron struct {
	*progressorv1.Cron
	inFile
}

// check returns the error that the engine would return.
func (c fileCron) check() error {
	if err := checkCron(c.Cron); err != nil {
		return c.wrong("cron", err)
	}
	return nil
}

// putTries limits how often put is retried if other nodes or users change the cron at the same
// time.
const putTries = 5

// put creates the cron if it is missing, and updates it if it differs. It sets paused only when it
// creates the cron, because an operator may have paused it since.
func (c fileCron) put(ctx context.Context, all *crons.Crons) error {
	by := process.Actor{Name: "configuration file"}
	for try := 1; ; try++ {
		there, err := all.Get(ctx, c.GetNamespace(), c.GetCronId())
		switch {
		case errors.Is(err, process.ErrCronNotFound):
			_, err = all.Create(ctx, &progressorv1.CreateCronRequest{Cron: c.Cron}, by)
		case err == nil && !c.same(there):
			wanted := proto.CloneOf(c.Cron)
			wanted.Etag = there.GetEtag()
			_, err = all.Update(ctx, &progressorv1.UpdateCronRequest{Cron: wanted}, by)
		}
		switch {
		case err == nil:
			return nil
		case try < putTries && (errors.Is(err, process.ErrCronExists) || errors.Is(err, process.ErrStaleEtag)):
			continue
		}
		return c.wrong("cron", err)
	}
}

// same reports whether a cron equals that of the file.
func (c fileCron) same(there *progressorv1.Cron) bool {
	return proto.Equal(c.GetSpec(), there.GetSpec()) && proto.Equal(c.GetPolicy(), there.GetPolicy()) &&
		proto.Equal(c.GetTarget(), there.GetTarget()) && proto.Equal(c.GetMetadata(), there.GetMetadata())
}

// redactCron hides the parts of a target that may be secret.
func redactCron(c *progressorv1.Cron) *progressorv1.Cron {
	c = proto.CloneOf(c)
	if target := c.GetTarget().GetHttp(); target != nil {
		target.Url = redactURL(target.GetUrl())
		for name := range target.GetHeaders() {
			target.Headers[name] = redacted
		}
	}
	return c
}
