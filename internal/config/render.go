// This file fills in a template's placeholders.

package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Rendered is a template with every placeholder filled in.
type Rendered struct {
	Command string
	Args    []string
	Env     map[string]string
	// Files are sorted by path.
	Files []RenderedFile
	// ReadyFile and ReadyContent are the readiness file, if that is the kind.
	ReadyFile, ReadyContent string
}

// RenderedFile is one file to write before a spawn.
type RenderedFile struct {
	// Path is relative to the workdir and stays in it.
	Path    string
	Content string
	Mode    uint32
}

// defaultFileMode is for files that say nothing: they may hold tokens.
const defaultFileMode = 0o600

// Render fills in the placeholders. The error names the template, the field and the placeholder.
func (t *Template) Render(v Values) (*Rendered, error) {
	var first error
	r := t.render(&v, func(_ []string, err error) {
		if first == nil {
			first = err
		}
	})
	if first != nil {
		return nil, first
	}
	return r, nil
}

// render fills in the placeholders and reports each mistake with the path of its field within the template.
func (t *Template) render(v *Values, report func(field []string, err error)) *Rendered {
	text := func(text string, field ...string) string {
		out, err := expand(t, text, v)
		if err != nil {
			report(field, fmt.Errorf("template %s, %s: %w", t.Name, showField(field), err))
		}
		return out
	}
	local := func(s string, field ...string) string {
		path := text(s, field...)
		if !filepath.IsLocal(path) || filepath.Clean(path) == "." {
			report(field, fmt.Errorf("template %s, %s: %q must be a relative path that stays in the workdir", t.Name, showField(field), path))
		}
		return filepath.Clean(path)
	}

	r := &Rendered{Command: text(t.Command, "command"), Env: map[string]string{}}
	if c := r.Command; c != SelfCommand && strings.Contains(c, "/") && (!filepath.IsAbs(c) || filepath.Clean(c) != c) {
		report([]string{"command"}, fmt.Errorf("template %s, command: %q must be a plain absolute path, a name on the PATH, or %s", t.Name, c, SelfCommand))
	}
	for i, arg := range t.Args {
		r.Args = append(r.Args, text(arg, "args", strconv.Itoa(i)))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		r.Env[name] = text(t.Env[name], "env", name)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		f := t.Files[name]
		mode, err := f.mode()
		if err != nil {
			report([]string{"files", name, "mode"}, fmt.Errorf("template %s, %s: %w", t.Name, showField([]string{"files", name, "mode"}), err))
		}
		path := local(name, "files", name)
		if slices.ContainsFunc(r.Files, func(o RenderedFile) bool { return o.Path == path }) {
			report([]string{"files", name}, fmt.Errorf("template %s, %s: there is another file with the path %q", t.Name, showField([]string{"files", name}), path))
		}
		r.Files = append(r.Files, RenderedFile{path, text(f.Content, "files", name, "content"), mode})
	}
	slices.SortFunc(r.Files, func(a, b RenderedFile) int { return strings.Compare(a.Path, b.Path) })
	if t.Ready.File != "" {
		r.ReadyFile = local(t.Ready.File, "ready", "file")
		r.ReadyContent = text(t.Ready.Content, "ready", "content")
	}
	return r
}

// mode reads the permission bits of a file.
func (f File) mode() (uint32, error) {
	if f.Mode == "" {
		return defaultFileMode, nil
	}
	m, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil || m > 0o777 {
		return 0, fmt.Errorf("%q is not a file mode; write it in octal like \"0600\", at most \"0777\"", f.Mode)
	}
	return uint32(m), nil
}

// showField writes a field's path as it reads in TOML, with the elements of the two lists as args[1].
func showField(path []string) string {
	if len(path) == 2 && (path[0] == "args" || path[0] == "ports") {
		return path[0] + "[" + path[1] + "]"
	}
	return showKey(path)
}
