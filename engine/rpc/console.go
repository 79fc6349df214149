package rpc

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/console"
)

// Console is the mode of the web console.
type Console string

// The modes of the console. The zero value is ConsoleFull.
const (
	ConsoleFull     Console = "full"
	ConsoleReadOnly Console = "read-only" // the console shows everything and changes nothing
	ConsoleOff      Console = "off"       // not served
)

// contentPolicy allows pages only the files and the API of this server: no inline scripts or
// styles, nothing from other sites, no text that becomes markup, no frames.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// minCompressed is the minimum size of a file that is compressed.
const minCompressed = 1 << 10

// consoleFile is a built file, prepared for sending.
type consoleFile struct {
	content          []byte
	compressed       func() []byte // nil if only the content itself is sent
	contentType, tag string
	immutable        bool // its name changes with its content
}

// consoleFiles prepares all files of the console, by their URL paths. In total, they have a few
// hundred kilobytes. A file is compressed when it is first sent.
func consoleFiles(files fs.FS, mode Console, version string) (map[string]*consoleFile, error) {
	prepared := map[string]*consoleFile{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".sha256" {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if name == "index.html" {
			content = []byte(
				strings.NewReplacer("__MODE__", string(mode), "__VERSION__",
					html.EscapeString(version)).Replace(string(content)))
		}
		f := &consoleFile{content: content, contentType: mime.TypeByExtension(path.Ext(name)),
			immutable: strings.HasPrefix(name, "assets/")}
		sum := sha256.Sum256(content)
		f.tag = `"` + hex.EncodeToString(sum[:12]) + `"`
		if len(content) >= minCompressed {
			f.compressed = sync.OnceValue(func() []byte { return compressed(content) })
		}
		prepared["/"+name] = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the console: %w", err)
	}
	if prepared["/index.html"] == nil {
		return nil, fmt.Errorf("prepare the console: no index.html among its built files")
	}
	return prepared, nil
}

func compressed(content []byte) []byte {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // writes to a buffer do not fail
	}
	return packed.Bytes()
}

// ServeHTTP sends the file.
func (f *consoleFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if f.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	content, tag := f.content, f.tag
	if f.compressed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content, tag = f.compressed(), strings.TrimSuffix(f.tag, `"`)+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// mountConsole serves the console at / to clients that accept HTML, with the files that it loads.
func mountConsole(mux *http.ServeMux, mode Console, version string, plain http.HandlerFunc) error {
	if mode == ConsoleOff {
		mux.HandleFunc("GET /{$}", plain)
		return nil
	}
	files, err := consoleFiles(console.Files, mode, version)
	if err != nil {
		return err
	}
	for name, f := range files {
		mux.Handle("GET "+name, f)
	}
	index := files["/index.html"]
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			index.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Vary", "Accept")
		plain(w, r)
	})
	return nil
}

// guardBrowsers rejects requests from pages of other sites. If the console is read-only, it also
// rejects changes that browsers request, except for logouts. Only browsers send the headers Origin
// and Sec-Fetch-Site. guardBrowsers calls rejected for each request from another site.
func guardBrowsers(mode Console, next http.Handler, rejected func()) http.Handler {
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		browser := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
		if mode == ConsoleReadOnly && browser && r.Method == http.MethodPost && !isRead(r.URL.Path) &&
			!ofConsole(r.URL.Path) {
			refuse(w, r, "the console of this engine is read-only (--console read-only): use the command line or "+
				"another client to make changes")
			return
		}
		next.ServeHTTP(w, r)
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rejected()
		refuse(w, r, "a page of another site sent this request: browsers may send requests only from the pages of "+
			"the engine")
	}))
	return protection.Handler(guarded)
}

func refuse(w http.ResponseWriter, r *http.Request, why string) {
	answer := connect.NewErrorWriter()
	err := connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s", why))
	if answer.IsSupported(r) {
		_ = answer.Write(w, r, err) // the client may have disconnected
		return
	}
	page(w, http.StatusForbidden, why)
}
