// This file reads the configuration file, the templates beside it and the built-in ones.

package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// builtin holds the built-in templates in the same format as everybody else's, as an example to copy.
//
//go:embed builtin.toml
var builtin []byte

// maxFileSize bounds a configuration file; a larger one is a mistake (a log, an image), not a configuration.
const maxFileSize = 1 << 20

// defaultTemplatesDir is looked for beside the configuration file.
const defaultTemplatesDir = "templates.d"

// Load reads the configuration at path; "" means the defaults and the built-in templates. Everything is
// checked, each template is rendered once with made-up values, and the error (an *Error unless a file can't
// be read) tells all mistakes at once, save those of a file that a value of the wrong type keeps from being read on.
func Load(path string) (*Config, error) {
	if path == "" {
		return load(path, nil)
	}
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration file %s doesn't exist; create it, or leave the option out for the defaults: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration can't be read: %w; mend that, or name another file with --config", err)
	}
	return load(path, data)
}

// LoadDefault is Load for a path that nobody asked for by name: if there is no file, the defaults hold, with
// the templates in templates.d beside where it would be.
func LoadDefault(path string) (*Config, error) {
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		cfg, err := load(path, nil)
		if cfg != nil {
			cfg.Path = ""
		}
		return cfg, err
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration can't be read: %w; mend that, or name another file with --config", err)
	}
	return load(path, data)
}

// load puts the configuration together from the file's text and what it refers to.
func load(path string, data []byte) (*Config, error) {
	cfg := Defaults()
	cfg.Path = path
	main := newDocument(path, data)
	main.decode(&cfg)
	main.checkConfig(&cfg)

	own := cfg.Templates
	cfg.Templates = map[string]*Template{}
	docs := []*document{newDocument(BuiltIn, builtin), main}
	cfg.addDocument(docs[0])
	cfg.addTemplates(main, own)
	if path != "" {
		files, err := cfg.templateFiles(main)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := readFile(file)
			if err != nil {
				return nil, fmt.Errorf("read templates: %w", err)
			}
			doc := newDocument(file, data)
			docs = append(docs, doc)
			cfg.addDocument(doc)
		}
	}

	var problems []Problem
	for _, doc := range docs {
		problems = append(problems, doc.problems...)
	}
	if err := asError(problems); err != nil {
		return nil, err
	}
	return &cfg, nil
}

// addDocument decodes a document that may hold nothing but templates, and adds them.
func (c *Config) addDocument(doc *document) {
	var only struct {
		Templates map[string]*Template `toml:"template"`
	}
	doc.decode(&only)
	c.addTemplates(doc, only.Templates)
}

// addTemplates checks the document's templates and adds them to the configuration.
func (c *Config) addTemplates(doc *document, templates map[string]*Template) {
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		t, path := templates[name], []string{"template", name}
		t.Name, t.Source = name, doc.file
		t.setDefaults(doc)
		doc.checkTemplate(t)
		switch former := c.Templates[name]; {
		case former == nil:
			c.Templates[name] = t
		case former.Source == BuiltIn:
			doc.errorf(path, "template %s is built in and can't be redefined; choose another name", name)
		default:
			doc.errorf(path, "template %s is defined in %s already; rename or remove one of them", name, former.Source)
		}
	}
}

// setDefaults fills in what the document leaves out.
func (t *Template) setDefaults(doc *document) {
	if t.Stop.Signal == "" {
		t.Stop.Signal = defaultStopSignal
	}
	// A grace of 0 is a choice (kill at once), so the document is asked, not the value.
	if !doc.has("template", t.Name, "stop", "grace") {
		t.Stop.Grace = defaultGrace
	}
}

// templateFiles returns the *.toml files of the templates directory in the order of their names. A missing
// directory is a problem only if the file names it.
func (c *Config) templateFiles(doc *document) ([]string, error) {
	named := c.TemplatesDir != ""
	dir := c.TemplatesDir
	if !named {
		dir = defaultTemplatesDir
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(c.Path), dir)
	}
	c.TemplatesDir = dir
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if named {
			doc.errorf([]string{"templates_dir"}, "directory %s doesn't exist; create it, or remove templates_dir", dir)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read templates_dir: %w", err)
	}
	var files []string
	for _, e := range entries { // sorted by name
		// Kubernetes mounts its files as links; anything but a file or a link (a FIFO) could block the read.
		plain := e.Type()&^fs.ModeSymlink == 0
		if plain && strings.HasSuffix(e.Name(), ".toml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// readFile reads a file of a sane size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %s; that is no configuration file", path, Size(maxFileSize))
	}
	return data, nil
}
