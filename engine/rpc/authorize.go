package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// authorization decides what the principals of requests may do. A nil *authorization allows
// everything.
type authorization struct {
	authenticator *auth.Authenticator
	rules         map[string]*accessRule // by procedure
	recheck       time.Duration          // interval at which the principal of a stream is checked again
}

// accessRule is the permission that a method needs, from its option progressor.v1.needs.
type accessRule struct {
	method   string
	needs    *progressorv1.Needs
	named    *named // nil if a request names no namespaces
	shown    *shown // nil if nothing in a response is hidden
	filtered bool   // a request has a filter
}

// newAuthorization returns the rules of all methods of the services. It returns an error if a
// method has no rule. Without an Authenticator, it returns nil.
func newAuthorization(a *auth.Authenticator, services ...string) (*authorization, error) {
	if a == nil {
		return nil, nil
	}
	all := &authorization{authenticator: a, rules: map[string]*accessRule{}, recheck: auth.CacheTime}
	for _, service := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			return nil, fmt.Errorf("authorization: %w", err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods() //nolint:forcetypeassert // only names of services
		for i := range methods.Len() {
			rule, err := newAccessRule(methods.Get(i))
			if err != nil {
				return nil, fmt.Errorf("authorization: %w", err)
			}
			all.rules["/"+service+"/"+rule.method] = rule
		}
	}
	return all, nil
}

func newAccessRule(method protoreflect.MethodDescriptor) (*accessRule, error) {
	needs, _ := proto.GetExtension(method.Options(), progressorv1.E_Needs).(*progressorv1.Needs)
	if needs.GetPermission() == 0 || needs.GetScope() == 0 {
		return nil, fmt.Errorf("%s has no option progressor.v1.needs", method.FullName())
	}
	found, err := newNamed(method.Input())
	if err != nil {
		return nil, err
	}
	filter := method.Input().Fields().ByName("filter")
	rule := &accessRule{method: string(method.Name()), needs: needs, named: found, filtered: filter != nil}
	if needs.GetPermission() != progressorv1.Permission_PERMISSION_JOB_WORK { // workers get the payloads of their tasks
		rule.shown = newShown(method.Output())
	}
	return rule, nil
}

// access is the permission for one request. The zero value is for an engine that does not
// authenticate clients.
type access struct {
	principal *auth.Principal
	rule      *accessRule
	part      part             // the first namespace of the request and its process, or ""
	visible   process.Patterns // patterns of the namespaces that a list over all namespaces may show; nil for all
}

// check returns the access of a request. It returns an error if the principal may not send the
// request.
func (a *authorization) check(ctx context.Context, procedure string, request any) (access, error) {
	if a == nil {
		return access{}, nil
	}
	p := principalOf(ctx)
	if p == nil {
		return access{}, unauthenticated(auth.ErrMissing)
	}
	return a.decide(p, procedure, request)
}

// decide is like check, for a given principal. It compares the permission that the method needs
// with the grants of the principal in each namespace of the request.
func (a *authorization) decide(p *auth.Principal, procedure string, request any) (access, error) {
	rule := a.rules[procedure]
	message, ok := request.(proto.Message)
	if rule == nil || !ok {
		return access{}, connect.NewError(connect.CodePermissionDenied, errors.New("unknown method "+procedure))
	}
	granted := access{principal: p, rule: rule}
	if of, ok := request.(keyed); ok {
		granted.part.processID = of.GetProcessId()
	}
	var last string
	var denied error
	if rule.named != nil {
		rule.named.each(message.ProtoReflect(), "", func(n namedNamespace) bool {
			if granted.part.namespace == "" {
				granted.part.namespace = n.name
			}
			if n.own && !rule.limited(p, n.name) || n.needs == 0 && n.name == last { // same as the previous item
				return true
			}
			if denied = rule.allow(p, n.name, n.needs); n.needs == 0 {
				last = n.name
			}
			return denied == nil
		})
	}
	switch {
	case denied != nil:
		return access{}, denied
	case granted.part.namespace == "":
		if granted.visible, denied = rule.allowUnnamed(p); denied != nil {
			return access{}, denied
		}
	}
	return granted, rule.checkFilter(granted, message)
}

// limited reports whether a principal uses a method as a worker that may take only some jobs of a
// namespace. The answers of such a worker must not contain commands to other processes of the
// namespace.
func (r *accessRule) limited(p *auth.Principal, namespace string) bool {
	return r.needs.GetPermission() == progressorv1.Permission_PERMISSION_JOB_WORK && p.Jobs(namespace) != nil
}

// allow returns an error if a principal may not use a method in a namespace. needs is the
// permission for a target, or 0.
func (r *accessRule) allow(p *auth.Principal, namespace string, needs progressorv1.Permission) error {
	or := r.needs.GetOr()
	if needs == 0 {
		needs = r.needs.GetPermission()
	} else {
		or = 0
	}
	if p.Can(needs, namespace) || or != 0 && p.Can(or, namespace) {
		return nil
	}
	return r.denied(p, needs, or, namespace)
}

// allowUnnamed returns the patterns of the namespaces to which a request without a namespace
// applies, or nil if they are not restricted. It returns an error if the principal may not send the
// request.
func (r *accessRule) allowUnnamed(p *auth.Principal) (process.Patterns, error) {
	where := p.Namespaces(r.needs.GetPermission())
	if r.needs.GetOr() != 0 {
		where = append(where, p.Namespaces(r.needs.GetOr())...)
	}
	switch everywhere := slices.Contains(where, auth.Everywhere); {
	case everywhere:
		return nil, nil
	case r.needs.GetScope() == progressorv1.Scope_SCOPE_VISIBLE && len(where) > 0:
		return where, nil
	case r.needs.GetScope() == progressorv1.Scope_SCOPE_NAMED && len(where) > 0:
		return nil, nil
	}
	return nil, r.denied(p, r.needs.GetPermission(), r.needs.GetOr(), "")
}

// checkFilter returns an error if a principal that may not see payloads uses them in a filter.
func (r *accessRule) checkFilter(a access, request proto.Message) error {
	const needs = progressorv1.Permission_PERMISSION_PAYLOAD_READ
	if !r.filtered || a.part.namespace == "" || a.principal.Can(needs, a.part.namespace) {
		return nil
	}
	filter := strings.ToLower(request.ProtoReflect().Get(
		request.ProtoReflect().Descriptor().Fields().ByName("filter")).String())
	if !strings.Contains(filter, "args") && !strings.Contains(filter, "payload") {
		return nil
	}
	return r.deniedBecause(a.principal, needs, 0, a.part.namespace, "filter: args and payload are payloads: ")
}

// denied returns the error for a principal that lacks a permission in a namespace, or in all
// namespaces if namespace is "".
func (r *accessRule) denied(p *auth.Principal, needs, or progressorv1.Permission, namespace string) error {
	return r.deniedBecause(p, needs, or, namespace, "")
}

func (r *accessRule) deniedBecause(
	p *auth.Principal, needs, or progressorv1.Permission, namespace, reason string,
) error {
	permission, roles := auth.PermissionName(needs), auth.RolesWith(needs)
	if or != 0 {
		permission += " or " + auth.PermissionName(or)
		for _, role := range auth.RolesWith(or) {
			if !slices.Contains(roles, role) {
				roles = append(roles, role)
			}
		}
	}
	where := "in all namespaces"
	if namespace != "" {
		where = "in namespace " + namespace
	} else if r.needs.GetScope() != progressorv1.Scope_SCOPE_ENGINE {
		where = "in a namespace"
	}
	err := connect.NewError(connect.CodePermissionDenied, fmt.Errorf(
		"%s%s needs the permission %s %s, and %s does not have it (roles with it: %s)",
		reason, r.method, permission, where, p.Name, strings.Join(roles, ", ")))
	addDetail(err, &progressorv1.ErrorDetail{
		Reason: progressorv1.ErrorDetail_REASON_PERMISSION, Namespace: namespace,
	})
	return err
}

// unauthenticated returns the error of a request without a valid token.
func unauthenticated(err error) error {
	connectErr := connect.NewError(connect.CodeUnauthenticated, err)
	addDetail(connectErr, &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_UNAUTHENTICATED})
	return connectErr
}

// in returns the context for the handler of a request.
func (a access) in(ctx context.Context) context.Context {
	if a.visible == nil {
		return ctx
	}
	return engine.WithVisible(ctx, a.visible)
}

// follow checks the principal of a stream periodically. After each successful check, it calls
// changed with the current access of the principal. If the token or login is no longer valid, or
// the principal has lost its permission, follow calls end with an error and returns. It also
// returns when ctx ends.
func (a *authorization) follow(
	ctx context.Context, procedure string, request any, changed func(access), end func(error),
) {
	if a == nil {
		return
	}
	ticker := time.NewTicker(a.recheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p, err := a.authenticator.Current(ctx, principalOf(ctx))
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, process.ErrUnavailable):
			continue
		case err != nil:
			err = unauthenticated(err)
		default:
			var granted access
			if granted, err = a.decide(p, procedure, request); err == nil {
				changed(granted)
			}
		}
		if err != nil {
			end(err)
			return
		}
	}
}

// mayEverywhere reports whether the principal of a request has a permission in all namespaces, or
// the engine does not authenticate.
func mayEverywhere(ctx context.Context, permission progressorv1.Permission) bool {
	p := principalOf(ctx)
	return p == nil || p.CanEverywhere(permission)
}
