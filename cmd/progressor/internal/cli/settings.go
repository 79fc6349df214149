package cli

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/configfile"
)

// settings resolves flags that are not on the command line: from the environment first, then from
// the configuration file. It resolves only flags with the tag `setting`. Only commands with the
// flag --config use the file.
type settings struct {
	getenv  func(string) (string, bool)
	environ func() []string          // if nil, unknown environment variables are not reported
	program func() *kong.Application // model of all commands; the parser may know only one of them
	loaded  bool
	file    configfile.File

	// sources are the sources of the values that were resolved, by flag name, such as "environment
	// PROGRESSOR_DB_DSN" or "progressor.yaml line 3".
	sources map[string]string
}

func newSettings(getenv func(string) (string, bool)) *settings {
	return &settings{getenv: getenv, sources: map[string]string{}}
}

// IsSetting reports whether the environment and the configuration file can set a flag.
func IsSetting(v *kong.Value) bool { return v.Tag != nil && v.Tag.Has("setting") }

// EnvName returns the name of the environment variable that sets a flag. For db.max-conns, it is
// PROGRESSOR_DB_MAX_CONNS.
func EnvName(flag string) string {
	return "PROGRESSOR_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(flag))
}

// load reads the configuration file if the command has the flag --config and the flag is set. kong
// may call it several times for one command line, and only the first call that finds the flag reads
// the file.
func (s *settings) load(ctx *kong.Context) error {
	if s.loaded {
		return nil
	}
	for _, flag := range ctx.Flags() {
		if flag.Name != "config" || flag.Target.Kind() != reflect.String {
			continue
		}
		s.loaded = true
		s.file.Path, _ = ctx.FlagValue(flag).(string)
		if env, _ := s.getenv(EnvName(flag.Name)); s.file.Path == "" {
			s.file.Path = env
		}
	}
	if s.file.Path == "" {
		return nil
	}
	text, err := os.ReadFile(s.file.Path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	file, err := configfile.Parse(text, settingKeys(s.program()))
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", s.file.Path, err)
	}
	file.Path = s.file.Path
	s.file = file
	return nil
}

// settingKeys returns the keys that the file may set: the settings of serve.
func settingKeys(model *kong.Application) map[string]bool {
	keys := map[string]bool{}
	for _, node := range model.Children {
		if node.Name != "serve" {
			continue
		}
		for _, flag := range node.Flags {
			if IsSetting(flag.Value) {
				keys[configfile.Key(flag.Name)] = true
			}
		}
	}
	return keys
}

// Validate implements kong.Resolver.
func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. It returns the value of a flag that is not on the command line.
func (s *settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !IsSetting(flag.Value) {
		return nil, nil
	}
	if v, set := s.getenv(EnvName(flag.Name)); set && v != "" {
		s.sources[flag.Name] = "environment " + EnvName(flag.Name)
		return v, nil
	}
	if v, ok := s.file.Values[configfile.Key(flag.Name)]; ok {
		s.sources[flag.Name] = fmt.Sprintf("%s line %d", s.file.Path, v.Line)
		return v.Text, nil
	}
	return nil, nil
}

// explain adds the source of the value to an error of kong about a flag.
func (s *settings) explain(err error) error {
	text := err.Error()
	for name, source := range s.sources {
		if strings.HasPrefix(text, "--"+name+":") || strings.HasPrefix(text, "--"+name+" ") {
			return fmt.Errorf("%s (from %s)", text, source)
		}
	}
	return errors.New(text)
}

// Source returns where the value of a flag comes from: "flag", "default", or the environment
// variable or line of the configuration file.
func (a *App) Source(ctx *kong.Context, flag *kong.Flag) string {
	if source, ok := a.settings.sources[flag.Name]; ok {
		return source
	}
	for _, part := range ctx.Path {
		if part.Flag == flag {
			return "flag"
		}
	}
	return "default"
}

// ConfigFile returns the configuration file of the command. It is empty if --config is not set.
func (a *App) ConfigFile() *configfile.File { return &a.settings.file }
