package conformance

import (
	"net/http"

	"github.com/progressor-engine/progressor/processor"
)

// Handler serves the functions of the kit, each at the path /NAME, as the program of an SDK does.
func Handler(functions map[string]processor.Processor) http.Handler {
	mux := http.NewServeMux()
	for name, function := range functions {
		handler := processor.Handler(function)
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/"
			handler.ServeHTTP(w, r)
		})
	}
	return mux
}
