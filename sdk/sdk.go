package sdk

import "embed"

// TypeScript contains the package for Node, and its tests.
//
//go:embed typescript/package.json typescript/LICENSE typescript/README.md typescript/dist typescript/test
var TypeScript embed.FS

// Python contains the package for Python, and its tests.
//
//go:embed python/pyproject.toml python/LICENSE python/README.md
//go:embed python/src/progressor/*.py python/src/progressor/py.typed python/tests/*.py
var Python embed.FS
