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

// check refuses what the engine would refuse.
func (c fileCron) check() error {
	if err := checkCron(c.Cron); err != nil {
		return c.wrong("cron", err)
	}
	return nil
}

// putTries bounds how often a cron is put that other nodes put at the same moment, or that somebody changes.
const putTries = 5

// put makes the cron where it is missing, and changes it where it differs. Whether it is paused is only said when it is made: somebody may
// have paused it since.
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

// same tells whether a cron is what the file says.
func (c fileCron) same(there *progressorv1.Cron) bool {
	return proto.Equal(c.GetSpec(), there.GetSpec()) && proto.Equal(c.GetPolicy(), there.GetPolicy()) &&
		proto.Equal(c.GetTarget(), there.GetTarget()) && proto.Equal(c.GetMetadata(), there.GetMetadata())
}

// redactCron hides what may be secret in a target.
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
