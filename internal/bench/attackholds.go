package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sdk "github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Attacks that occupy resources of the engine: slots, connections, memory and names.

const (
	// slowByte is the interval between the bytes of a slow body.
	slowByte = 5 * time.Second
	// holdPause is the time before a client of an attack repeats what was rejected or ended.
	holdPause = 10 * time.Second
	// namespaceClients is the number of clients that create namespaces. Before the attack, they try
	// to create namespacesAtMost namespaces. The engine must refuse earlier.
	namespaceClients, namespacesAtMost = 8, 5000
)

// tenant returns a client with the token of the attacker.
func (a *attacked) tenant(client *http.Client) *sdk.Client {
	return sdk.New(a.url(a.from), sdk.WithHTTPClient(client), sdk.WithoutKeys(), sdk.WithToken(a.token))
}

// expandResponses calls the processor of the attacker.
func (a *attacked) expandResponses(ctx context.Context) error {
	api := a.tenant(a.hostile)
	var next atomic.Uint64
	return a.repeat(ctx, a.command.sized(responseClients), 0, func(ctx context.Context, _ int) error {
		_, err := api.Process.Start(ctx, &progressorv1.StartRequest{
			Namespace: attackerName, ProcessId: processID(next.Add(1)),
		})
		if err == nil {
			return fmt.Errorf("%w: the response of the processor", errAccepted)
		}
		if ctx.Err() == nil {
			a.requests.Add(1)
		}
		return err
	})
}

// await sends AwaitTask requests for a task that never ends, over HTTP/2.
func (a *attacked) await(ctx context.Context) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	api := a.tenant(client)
	started, err := api.Process.Start(ctx, &progressorv1.StartRequest{
		Namespace: attackerName + workSuffix, ProcessId: "p", Wait: progressorv1.Wait_WAIT_ACCEPTED,
	})
	if err != nil {
		return err
	}
	return a.repeat(ctx, a.command.sized(awaitingRequests), holdPause, func(ctx context.Context, _ int) error {
		_, err := api.Process.AwaitTask(ctx, &progressorv1.AwaitTaskRequest{
			Namespace: attackerName + workSuffix, ProcessId: "p",
			Key:     &progressorv1.AwaitTaskRequest_TaskId{TaskId: started.GetTaskId()},
			Timeout: durationpb.New(10 * time.Minute),
		})
		if ctx.Err() == nil {
			a.requests.Add(1)
		}
		return err
	})
}

// dial opens a connection of the attacker, and returns a function that closes it. The connection is
// also closed when ctx ends.
func (a *attacked) dial(ctx context.Context) (net.Conn, func(), error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(a.from, a.port))
	if err != nil {
		return nil, nil, err
	}
	a.connections.Add(1)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() { stop(); _ = conn.Close() }, nil
}

// header returns the beginning of a request from the attacker.
func (a *attacked) header(path, contentType string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n"+
		"Content-Length: %d\r\n\r\n", path, a.from, a.token, contentType, length)
}

// sendSlowly sends bodies that take as long as the engine allows.
func (a *attacked) sendSlowly(ctx context.Context) error {
	n := a.command.sized(openConnections)
	if err := enoughFiles(n + 2000); err != nil {
		return err
	}
	return a.repeat(ctx, n, time.Second, func(ctx context.Context, _ int) error {
		conn, end, err := a.dial(ctx)
		if err != nil {
			return err
		}
		defer end()
		if _, err := io.WriteString(conn, a.header(startPath, "application/json", 1000)); err != nil {
			return err
		}
		for {
			if _, err := io.WriteString(conn, " "); err != nil {
				return err
			}
			if err := wait(ctx, slowByte); err != nil {
				return err
			}
		}
	})
}

// keepConnections keeps connections open that have had one request.
func (a *attacked) keepConnections(ctx context.Context) error {
	n := a.command.sized(openConnections)
	if err := enoughFiles(n + 2000); err != nil {
		return err
	}
	return a.repeat(ctx, n, holdPause, func(ctx context.Context, _ int) error {
		conn, end, err := a.dial(ctx)
		if err != nil {
			return err
		}
		defer end()
		if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: "+a.from+"\r\n\r\n"); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, conn)
		return err
	})
}

// watchedID is the process with many events.
const watchedID = "watched"

// importEvents prepares a process with many events.
func (a *attacked) importEvents(ctx context.Context) error {
	imported := &progressorv1.PutProcessRequest{
		Namespace: attackerName, ProcessId: watchedID, Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
	}
	for n := range watchedEvents {
		imported.History = append(imported.History, &progressorv1.Event{
			EventId: int64(n + 1), Timestamp: timestamppb.Now(), Payload: noise(1 << 10),
		})
	}
	if _, err := a.tenant(a.hostile).Process.PutProcess(ctx, imported); err != nil {
		return fmt.Errorf("import a process: %w", err)
	}
	return nil
}

// watchSilently watches the process with many events, and reads nothing.
func (a *attacked) watchSilently(ctx context.Context) error {
	message := `{"namespace":"` + attackerName + `","processId":"` + watchedID + `"}`
	var request strings.Builder
	const path = "/progressor.v1.ProcessService/WatchProcess"
	request.WriteString(a.header(path, "application/connect+json", len(message)+5))
	request.WriteByte(0)
	request.Write(binary.BigEndian.AppendUint32(nil, uint32(len(message))))
	request.WriteString(message)
	return a.repeat(ctx, a.command.sized(silentWatchers), time.Second, func(ctx context.Context, _ int) error {
		conn, end, err := a.dial(ctx)
		if err != nil {
			return err
		}
		defer end()
		if _, err := io.WriteString(conn, request.String()); err != nil {
			return err
		}
		return wait(ctx, time.Minute) // longer than the engine allows
	})
}

// createNamespace creates a namespace with a new name.
func (a *attacked) createNamespace(ctx context.Context, api *sdk.Client) error {
	_, err := api.Namespace.PutNamespace(ctx, &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: fmt.Sprint(attackerName, "/n", a.created.Add(1)),
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Pull{
			Pull: &progressorv1.PullProcessor{},
		}},
	}})
	return asOverload(err)
}

// fillNamespaces creates namespaces until the engine refuses to create another one.
func (a *attacked) fillNamespaces(ctx context.Context) error {
	api := a.tenant(a.hostile)
	err := each(ctx, namespacesAtMost, namespaceClients,
		func(ctx context.Context, _ int) error { return a.createNamespace(ctx, api) })
	if errors.Is(err, process.ErrOverloaded) {
		return nil
	}
	return cmp.Or(err, errAccepted)
}

// createNamespaces tries to create more namespaces.
func (a *attacked) createNamespaces(ctx context.Context) error {
	api := a.tenant(a.hostile)
	return a.repeat(ctx, a.command.sized(namespaceClients), 0, func(ctx context.Context, _ int) error {
		err := a.createNamespace(ctx, api)
		if ctx.Err() == nil {
			a.requests.Add(1)
		}
		return err
	})
}
