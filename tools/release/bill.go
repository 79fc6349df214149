package main

import (
	"errors"
	"os"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// writeBill writes the bill of materials of a binary: the modules that it contains. The bill has no
// serial number, no time and no hash of the tool, so that a binary always has the same bill.
func writeBill(path, version string) (err error) {
	generator, err := bin.NewGenerator(path, bin.WithIncludeStdlib(true), bin.WithVersionOverride(version),
		bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return err
	}
	bill, err := generator.Generate()
	if err != nil {
		return err
	}
	file, err := os.Create(path + ".cdx.json")
	if err != nil {
		return err
	}
	encoder := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	return errors.Join(encoder.Encode(bill), file.Close())
}
