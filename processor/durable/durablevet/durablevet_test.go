package durablevet_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/progressor-engine/progressor/processor/durable/durablevet"
)

const testdata = "./processor/durable/durablevet/testdata/"

// Each mistake is reported at its position, with a message that says what to use instead.
func TestTraps(t *testing.T) {
	analysistest.Run(t, "../../..", durablevet.Analyzer, testdata+"traps")
}

// Correct code is not reported.
func TestCorrect(t *testing.T) {
	analysistest.Run(t, "../../..", durablevet.Analyzer, testdata+"correct")
}
