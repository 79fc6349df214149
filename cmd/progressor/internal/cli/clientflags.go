package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/login"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// ReadTimeout limits requests that do not wait for a task.
const ReadTimeout = 30 * time.Second

// engineAddress is the URL of an engine. The scheme is optional.
type engineAddress string

func (e engineAddress) url() string {
	if strings.Contains(string(e), "://") {
		return string(e)
	}
	return "http://" + string(e)
}

// Validate returns an error if the address cannot be the address of an engine.
func (e engineAddress) Validate() error {
	u, err := url.Parse(e.url())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("must be a URL, such as http://127.0.0.1:8080 or https://engine.example.com (got %s)", string(e))
	}
	return nil
}

// ClientFlags are the flags of all commands that call an engine.
type ClientFlags struct {
	Address    engineAddress `default:"http://127.0.0.1:8080" placeholder:"URL" setting:"" help:"URL of an engine. Default: ${default}." group:"client"`
	Token      string        `placeholder:"TOKEN" setting:"" help:"Token of an engine that requires authentication. Prefer the variable or --token-file: other users of the machine can see flags." group:"client"`
	TokenFile  string        `placeholder:"FILE" setting:"" help:"File with the token. Default: .progressor/token, if it exists and --address is on this machine." group:"client"`
	LoginFile  string        `placeholder:"FILE" setting:"" help:"File with the logins of progressor login. Default: progressor/logins.json in your configuration directory." group:"client"`
	TLS        clientTLS     `embed:"" prefix:"tls." group:"client"`
	OutputFlag `embed:"" group:"client"`
	Decode     bool `group:"client" help:"With -o json: show payloads as JSON or text. Others begin with base64:."`
}

// Client returns a client that gives up within a second, because a person is waiting.
func (f ClientFlags) Client() *client.Client {
	return f.clientWith(client.Retry{MaxAttempts: 4, Initial: 100 * time.Millisecond, Max: 400 * time.Millisecond})
}

// RetryingClient returns a client for long waits. It survives a restart of the engine.
func (f ClientFlags) RetryingClient() *client.Client { return f.clientWith(client.DefaultRetry()) }

func (f ClientFlags) clientWith(r client.Retry) *client.Client {
	options := []client.Option{client.WithRetry(r), client.WithUserAgent("progressor/" + BuildVersion()),
		client.WithConnectOptions(connect.WithInterceptors(connect.UnaryInterceptorFunc(followTries))),
		client.WithTLS(f.TLS.config())}
	login, err := f.login()
	switch file := f.tokenFile(); {
	case f.Token != "":
		options = append(options, client.WithToken(f.Token))
	case f.TokenFile == "" && (login || err != nil):
		options = append(options, client.WithTokenSource(f.Logins().Source(f.Engine())))
	case file != "":
		options = append(options, client.WithTokenFile(file))
	}
	return client.New(f.Address.url(), options...)
}

// Engine returns the URL of the engine.
func (f ClientFlags) Engine() string { return f.Address.url() }

// Logins returns the file with the logins of the user.
func (f ClientFlags) Logins() login.File {
	if f.LoginFile != "" {
		return login.File(f.LoginFile)
	}
	return login.Default()
}

// login reports whether the user has logged in to the engine. A client with a certificate must not
// send a token.
func (f ClientFlags) login() (bool, error) {
	if f.TLS.ClientCertFile != "" {
		return false, nil
	}
	_, ok, err := f.Logins().Get(f.Engine())
	return ok, err
}

// localTokenFile is the file in which an engine on this machine stores its root key.
const localTokenFile = ".progressor/token"

// tokenFile returns the file with the token, or "". The root key of an engine on this machine is
// never sent to another machine.
func (f ClientFlags) tokenFile() string {
	if f.TokenFile != "" {
		return f.TokenFile
	}
	u, err := url.Parse(f.Address.url())
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return ""
	}
	if info, err := os.Stat(localTokenFile); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return localTokenFile
}

// pageToken returns the token for a page, or "".
func (f ClientFlags) pageToken(ctx context.Context) (string, error) {
	login, err := f.login()
	file := f.tokenFile()
	switch {
	case f.Token != "":
		return f.Token, nil
	case f.TokenFile == "" && err != nil:
		return "", UsageError(err)
	case f.TokenFile == "" && login:
		return f.Logins().Source(f.Engine())(ctx)
	case file == "":
		return "", nil
	}
	token, err := client.ReadToken(file)
	if err != nil {
		return "", UsageError(err)
	}
	return token, nil
}

// maxPage is the maximum size of a page that is read.
const maxPage = 64 << 10

// Page returns the text of an HTTP page of the engine.
func (f ClientFlags) Page(ctx context.Context, path string) (string, error) {
	token, err := f.pageToken(ctx)
	if err != nil {
		return "", err
	}
	return f.page(ctx, path, token)
}

// PublicPage is like Page, but sends no token.
func (f ClientFlags) PublicPage(ctx context.Context, path string) (string, error) {
	return f.page(ctx, path, "")
}

func (f ClientFlags) page(ctx context.Context, path, token string) (string, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented
	transport.TLSClientConfig = f.TLS.config()
	return pageFrom(ctx, transport, f.Address.url(), path, token)
}

// pageFrom returns the text of a page from the engine at address.
func pageFrom(ctx context.Context, transport *http.Transport, address, path, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, which the message below contains
	}
	if err != nil {
		err = fmt.Errorf("the engine at %s cannot be reached: %w", address, err)
		return "", &CodedError{Err: err, Code: ExitUnavailable, Next: nextOfConnection(err, err.Error())}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxPage))
	text := strings.TrimSpace(string(content))
	switch {
	case err != nil:
		return "", err
	case response.StatusCode == http.StatusServiceUnavailable:
		return "", &CodedError{Err: errors.New(text), Code: ExitUnavailable}
	case response.StatusCode != http.StatusOK:
		return "", &CodedError{Err: errors.New(text), Code: ExitFailed, Next: nextOfConnection(nil, text)}
	}
	return text, nil
}

// Validate returns an error if the flags are contradictory.
func (f ClientFlags) Validate() error {
	if f.Token != "" && f.TokenFile != "" {
		return errors.New("--token, --token-file: set only one of them")
	}
	return f.TLS.check()
}

// Request returns the context of a request that does not wait for a task.
func (a *App) Request() (context.Context, context.CancelFunc) {
	ctx, cancelSignal := a.Interruptible()
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	return ctx, func() { cancel(); cancelSignal() }
}

// Ask is like Show, but its function prints only this type of response.
func Ask[Q, P proto.Message](
	a *App, format OutputFlag, call func(context.Context, Q) (P, error), req Q, show func(P) error,
) error {
	return Show(a, format, call, req, func(_ *App, resp P) error { return show(resp) })
}

// ProcessArgs identify a process.
type ProcessArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" complete:"process" help:"Process id."`
}

// RangeFlags select a part of the history.
type RangeFlags struct {
	Offset   *int64 `field:"range.offset,processor.range.offset" placeholder:"EVENT" help:"Only events after this event; with --backward, before it."`
	Limit    *int32 `field:"range.limit,processor.range.limit" placeholder:"N" help:"Maximum number of events; 0 means none."`
	Backward bool   `help:"Newest event first."`
}

// HistoryRange returns the selected part, or nil for all.
func (f RangeFlags) HistoryRange() *progressorv1.HistoryRange {
	if f.Offset == nil && f.Limit == nil && !f.Backward {
		return nil
	}
	r := &progressorv1.HistoryRange{Offset: f.Offset, Limit: f.Limit}
	if f.Backward {
		r.Direction = progressorv1.HistoryRange_DIRECTION_BACKWARD
	}
	return r
}

// TimeFrom parses a time, a date (midnight UTC) or a duration from now. It returns nil for "".
func TimeFrom(flag, value string) (*timestamppb.Timestamp, error) {
	if value == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(value); err == nil {
		return timestamppb.New(time.Now().Add(d)), nil
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		t, err = time.Parse(time.DateOnly, value)
	}
	if err != nil {
		return nil, UsageError(
			fmt.Errorf("%s: must be a time, such as 2026-11-20T15:04:05Z, a date (midnight UTC), or a duration, "+
				"such as 90s", flag))
	}
	return timestamppb.New(t), nil
}

// ErrBothKeys is returned if both flags of a pair are set, or neither is.
var ErrBothKeys = errors.New("set either --task or --idempotency-key")

// OutputFlag selects the output format.
type OutputFlag struct {
	Output string `short:"o" enum:"table,json" default:"table" placeholder:"table|json" setting:"" help:"Output format: table for people, json for programs. Default: ${default}."`
}

// JSON reports whether the output format is JSON.
func (f OutputFlag) JSON() bool { return f.Output == "json" }

// Both combines two filters with AND; "" matches everything. A single filter is not changed,
// because the engine reports errors by character position.
func Both(a, b string) string {
	if strings.TrimSpace(a) == "" || strings.TrimSpace(b) == "" {
		return a + b
	}
	return "(" + a + ") AND (" + b + ")"
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
