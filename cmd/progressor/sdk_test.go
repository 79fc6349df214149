package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/sdk"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const signingKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// sdkEngine starts an engine for the tests of an SDK. It returns the environment variables of the
// tests. The namespace "signed" can sign requests with the secret "key".
func sdkEngine(t *testing.T) (env []string) {
	t.Helper()
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn)
	d.Client.OK(t, "namespace", "put", "signed", "--pull")
	if r := putSecret(t, dsn, "key", "signed", signingKey); r.Code != cli.ExitOK {
		t.Fatalf("%+v", r)
	}
	return append(os.Environ(), "PROGRESSOR_ADDRESS="+d.URL, "SIGNING_KEY="+signingKey)
}

// sdkCopy returns a directory with a copy of an SDK, so that its tests do not change the tree.
func sdkCopy(t *testing.T, files fs.FS, name string, programs ...string) (dir string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// run runs a command in a directory and returns its output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The tests of sdk/typescript pass with an engine.
func TestTypeScriptSDK(t *testing.T) {
	t.Parallel()
	dir := sdkCopy(t, sdk.TypeScript, "typescript", "node")
	env := sdkEngine(t)
	for _, file := range []string{"client", "worker", "faults", "durable"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			run(t, dir, env, "node", "--test", "--test-reporter=spec", "test/"+file+".test.mjs")
		})
	}
}

// The package that npm packs contains everything that a program needs, and can be installed without
// a registry.
func TestTypeScriptSDKPackage(t *testing.T) {
	t.Parallel()
	dir := sdkCopy(t, sdk.TypeScript, "typescript", "node", "npm")
	env := append(os.Environ(), "npm_config_cache="+t.TempDir())
	packed := strings.TrimSpace(run(t, dir, env, "npm", "pack", "--silent"))
	files := strings.Fields(run(t, dir, env, "tar", "-tzf", packed))
	slices.Sort(files)
	for _, want := range []string{
		"LICENSE", "README.md", "package.json", "dist/index.js", "dist/index.d.ts", "dist/api.d.ts",
	} {
		if !slices.Contains(files, "package/"+want) {
			t.Errorf("%s lacks %s: %v", packed, want, files)
		}
	}
	if i := slices.IndexFunc(files, func(name string) bool { return strings.Contains(name, "test") }); i >= 0 {
		t.Errorf("%s contains %s", packed, files[i])
	}
	program := t.TempDir()
	run(t, program, env, "npm", "install", "--offline", "--no-audit", "--no-fund", filepath.Join(dir, packed))
	out := run(t, program, env, "node", "--input-type=module", "-e",
		`import { Client, Worker, processor, verify } from "@progressor-engine/sdk"; `+
			`console.log(new Client("http://x").url)`)
	clitest.WantLines(t, out, "http://x")
}

// The SDK stays small: without the generated types, blank lines and comments, it has at most 2,000
// lines.
func TestTypeScriptSDKSize(t *testing.T) {
	files, err := filepath.Glob("../../sdk/typescript/src/*.ts")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	lines := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			isComment := strings.HasPrefix(line, "//") || strings.HasPrefix(line, "/**") || strings.HasPrefix(line, "*")
			if filepath.Base(file) != "api.ts" && line != "" && !isComment {
				lines++
			}
		}
	}
	if lines > 2000 {
		t.Errorf("the SDK has %d lines of code, at most 2000", lines)
	}
}

// The tests of sdk/python pass with an engine.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	dir := sdkCopy(t, sdk.Python, "python", "python3")
	env := append(sdkEngine(t), "PYTHONPATH="+filepath.Join(dir, "src"))
	for _, file := range []string{"client", "worker", "faults"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			run(t, filepath.Join(dir, "tests"), env, "python3", "-W", "error::SyntaxWarning", "test_"+file+".py")
		})
	}
}

// A wheel of the package can be installed without an index. Building it needs setuptools from an
// index.
func TestPythonSDKPackage(t *testing.T) {
	t.Parallel()
	dir := sdkCopy(t, sdk.Python, "python", "python3")
	if testing.Short() {
		t.Skip("downloads setuptools")
	}
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import venv, ensurepip").Run(); err != nil {
		t.Skip("python3 has no venv")
	}
	run(t, dir, nil, "python3", "-m", "venv", "env")
	python := filepath.Join(dir, "env", "bin", "python")
	fetched(t, dir, python,
		"-m", "pip", "wheel", "--no-deps", "--quiet", "--disable-pip-version-check", "-w", "wheels", ".")
	wheels, err := filepath.Glob(filepath.Join(dir, "wheels", "*.whl"))
	if err != nil || len(wheels) != 1 || !strings.HasSuffix(wheels[0], "-py3-none-any.whl") {
		t.Fatal(wheels, err)
	}
	files := run(t, dir, nil, python, "-m", "zipfile", "-l", wheels[0])
	clitest.WantLines(t, files, "progressor/__init__.py", "progressor/api.py", "progressor/py.typed", "LICENSE")
	if strings.Contains(files, "tests/") {
		t.Errorf("%s", files)
	}
	run(t, dir, nil, python, "-m", "pip", "install", "--no-index", "--quiet", "--disable-pip-version-check", wheels[0])
	out := run(t, t.TempDir(), nil, python, "-c",
		"from progressor import Client, Processor, Worker, __version__, verify; "+
			"print(Client('http://x').url, __version__)")
	clitest.WantLines(t, out, "http://x 0.1.0")
}

// All files of an SDK contain the same version.
func TestSDKVersions(t *testing.T) {
	for file, want := range map[string]string{
		"sdk/typescript/package.json":           `"version": "0.1.0"`,
		"sdk/typescript/src/version.ts":         `version = "0.1.0"`,
		"sdk/python/pyproject.toml":             "\nversion = \"0.1.0\"",
		"sdk/python/src/progressor/_version.py": `VERSION = "0.1.0"`,
	} {
		if !strings.Contains(readPage(t, file), want) {
			t.Errorf("%s does not have %s", file, want)
		}
	}
}

// The quick starts in the READMEs of the SDKs are short.
func TestSDKStartsAreShort(t *testing.T) {
	programOf := regexp.MustCompile("(?s)(?:```(?:js|python)|<<'EOF')\n(.*?)(?:```|EOF)\n")
	for _, file := range []string{
		"sdk/typescript/README.md", "sdk/python/README.md", "docs/quickstart/node.md", "docs/quickstart/python.md",
	} {
		programs := programOf.FindAllStringSubmatch(readPage(t, file), 3)
		if len(programs) != 3 {
			t.Errorf("%s has %d programs", file, len(programs))
		}
		for _, program := range programs {
			code := regexp.MustCompile(`\n{2,}`).ReplaceAllString(strings.TrimSpace(program[1]), "\n")
			if lines := strings.Count(code, "\n") + 1; lines > 20 {
				t.Errorf("%s: a program has %d lines, at most 20:\n%s", file, lines, program[1])
			}
		}
	}
}
