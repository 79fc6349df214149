// Command progressor-vet finds mistakes in durable functions that the compiler cannot find. It is a
// tool for go vet:
//
//	go install github.com/progressor-engine/progressor/cmd/progressor-vet@latest
//	go vet -vettool=$(which progressor-vet) ./...
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/progressor-engine/progressor/processor/durable/durablevet"
)

func main() { unitchecker.Main(durablevet.Analyzer) }
