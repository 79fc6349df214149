package sinks

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// openTarget is the open target of a delivery.
type openTarget struct {
	Deliverer
	settings *progressorv1.Sink // with decrypted secrets
	refers   *progressorv1.Sink // with references to secrets; nil if there are none
}

// openTarget opens the target of a sink. It replaces the references to secrets.
func (s *Sinks) openTarget(ctx context.Context, m *progressorv1.Sink) (openTarget, error) {
	settings, err := resolved(ctx, m, s.cached())
	if err != nil {
		return openTarget{}, err
	}
	opened := openTarget{settings: settings}
	if refers(m) {
		opened.refers = m
	}
	opened.Deliverer, err = s.open(settings)
	return opened, err
}

// refresh opens the target again if a secret to which the sink refers has changed. It returns false
// if that failed.
func (d *delivery) refresh() (bool, error) {
	if d.target.refers == nil {
		return true, nil
	}
	settings, err := resolved(d.ctx, d.target.refers, d.sinks.cached())
	if _, unusable := errors.AsType[*process.InvalidError](err); unusable {
		return false, d.fail(err)
	}
	if err != nil || proto.Equal(settings, d.target.settings) {
		return true, nil //nolint:nilerr // while the database does not respond, the last known secrets are used
	}
	next, err := d.sinks.openTarget(d.ctx, d.target.refers)
	if err != nil {
		return false, d.fail(err)
	}
	d.target.Close()
	d.target = next
	return true, nil
}
