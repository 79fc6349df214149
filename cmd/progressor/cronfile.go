package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// fileCron is a cron of the configuration file.
type fileCron struct {
	*progressorv1.Cron
	path string // such as crons[1]
	node *yaml.Node
}

// parseCrons reads the list crons.
func parseCrons(list *yaml.Node) ([]fileCron, error) {
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: crons: want a list", list.Line)
	}
	var all []fileCron
	seen := map[[2]string]bool{}
	for i, node := range list.Content {
		c := fileCron{Cron: &progressorv1.Cron{}, path: fmt.Sprintf("crons[%d]", i), node: node}
		if err := messageFromYAML(node, c.Cron, c.path); err != nil {
			return nil, err
		}
		name := [2]string{c.GetNamespace(), c.GetCronId()}
		switch {
		case c.GetNamespace() == "":
			return nil, fmt.Errorf("line %d: %s.namespace is missing", c.node.Line, c.path)
		case c.GetCronId() == "":
			return nil, fmt.Errorf("line %d: %s.cron_id is missing", c.node.Line, c.path)
		case seen[name]:
			return nil, fmt.Errorf("line %d: %s: cron %s of namespace %s is there twice", c.node.Line, c.path, c.GetCronId(), c.GetNamespace())
		}
		seen[name] = true
		all = append(all, c)
	}
	return all, nil
}

// check refuses what the engine would refuse.
func (c fileCron) check() error {
	if err := checkCron(c.Cron); err != nil {
		return c.wrong(err)
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
		return c.wrong(err)
	}
}

// same tells whether a cron is what the file says.
func (c fileCron) same(there *progressorv1.Cron) bool {
	return proto.Equal(c.GetSpec(), there.GetSpec()) && proto.Equal(c.GetPolicy(), there.GetPolicy()) &&
		proto.Equal(c.GetTarget(), there.GetTarget()) && proto.Equal(c.GetMetadata(), there.GetMetadata())
}

// wrong says where in the file an error is.
func (c fileCron) wrong(err error) error {
	var invalid *process.InvalidError
	if errors.As(err, &invalid) {
		path := strings.TrimPrefix(invalid.Field, "cron.")
		return fmt.Errorf("line %d: %s.%s: %s", lineOf(c.node, path), c.path, path, invalid.Message)
	}
	return fmt.Errorf("line %d: %s: %w", c.node.Line, c.path, err)
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
