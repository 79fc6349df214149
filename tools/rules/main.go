// Command rules checks files of Prometheus rules, like promtool check rules. It is a separate
// module, so that the engine does not depend on Prometheus.
package main

import (
	"errors"
	"log"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	log.SetFlags(0)
	p := parser.NewParser(parser.Options{})
	for _, name := range os.Args[1:] {
		_, errs := rulefmt.ParseFile(name, false, model.UTF8Validation, p, slog.Default())
		if len(errs) > 0 {
			log.Fatal(errors.Join(errs...))
		}
	}
}
