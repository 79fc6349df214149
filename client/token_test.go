package client

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// While one request waits for the file system, others use the token that was read last.
func TestTokenFileIsReadByOneRequest(t *testing.T) {
	t.Parallel()
	f := &tokenFile{path: filepath.Join(t.TempDir(), "token")}
	if err := syscall.Mkfifo(f.path, 0o600); err != nil {
		t.Fatal(err)
	}
	f.last.Store(&readToken{"old", time.Now().Add(-tokenFileTime)})
	read := func() <-chan string {
		got := make(chan string, 1)
		go func() {
			text, err := f.token()
			if err != nil {
				t.Error(err)
			}
			got <- text
		}()
		return got
	}
	slow := read()
	var pipe *os.File
	for pipe == nil { // opening fails until the reader has opened the pipe
		pipe, _ = os.OpenFile(f.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	}
	select {
	case token := <-read():
		if token != "old" {
			t.Errorf("got the token %s, want the old one", token)
		}
	case <-time.After(time.Minute):
		t.Error("a request waits for the file that another one reads")
	}
	if _, err := pipe.WriteString("new\n"); err != nil {
		t.Error(err)
	}
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
	if token := <-slow; token != "new" {
		t.Errorf("the request that read the file got the token %s", token)
	}
	if token := <-read(); token != "new" {
		t.Errorf("afterwards, the token is %s", token)
	}
}
