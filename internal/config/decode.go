// This file decodes TOML strictly and turns go-toml's errors into sentences that name the key, what was
// found and what is allowed, without Go's names for things.

package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// decode reads the document into v, a pointer to a struct, and notes what is wrong.
func (d *document) decode(v any) {
	root := reflect.TypeOf(v).Elem()
	d.checkTexts(root)
	err := toml.NewDecoder(bytes.NewReader(d.data)).DisallowUnknownFields().Decode(v)
	var unknown *toml.StrictMissingError
	var bad *toml.DecodeError
	switch {
	case err == nil:
	case errors.As(err, &unknown):
		for i := range unknown.Errors {
			e := &unknown.Errors[i]
			line, column := e.Position()
			d.errorAt(line, column, "%s", unknownKey(root, e.Key()))
		}
	case errors.As(err, &bad):
		line, column := bad.Position()
		d.errorAt(line, column, "%s", badValue(root, bad))
	case len(d.problems) == 0:
		d.errorAt(0, 0, "%s", err)
	}
}

// checkTexts notes every duration, size and port range that isn't written as a string: go-toml would take a
// bare 10 for ten nanoseconds.
func (d *document) checkTexts(root reflect.Type) {
	for key, p := range d.places {
		path := strings.Split(key, "\x00")
		t := typeAt(root, path)
		if t == nil || p.kind == unstable.String {
			continue
		}
		switch t {
		case reflect.TypeFor[Duration](), reflect.TypeFor[Size](), reflect.TypeFor[PortRange]():
			d.errorf(path, "%s must be %s, in quotes", showKey(path), wants(t))
		}
	}
}

// unknownKey says which keys are allowed where this one stands.
func unknownKey(root reflect.Type, key []string) string {
	parent := typeAt(root, key[:len(key)-1])
	if parent == nil || parent.Kind() != reflect.Struct {
		return fmt.Sprintf("unknown key %s", showKey(key))
	}
	var allowed []string
	for f := range fields(parent) {
		allowed = append(allowed, f)
	}
	where := "at the top of the file"
	if len(key) > 1 {
		where = "in [" + showKey(key[:len(key)-1]) + "]"
	}
	return fmt.Sprintf("unknown key %s; %s there may be: %s", showKey(key), where, strings.Join(allowed, ", "))
}

// badValue says what a key wants when it was given something of another type.
func badValue(root reflect.Type, e *toml.DecodeError) string {
	message := strings.TrimPrefix(e.Error(), "toml: ")
	key := e.Key()
	t := typeAt(root, key)
	if len(key) == 0 || t == nil {
		return message
	}
	if rest, ok := strings.CutPrefix(message, "cannot decode TOML "); ok {
		found, _, _ := strings.Cut(rest, " into ")
		return fmt.Sprintf("%s must be %s, not a TOML %s", showKey(key), wants(t), found)
	}
	if strings.Contains(message, "cannot be stored in") || strings.Contains(message, "too large to fit") {
		return fmt.Sprintf("%s must be %s within range", showKey(key), wants(t))
	}
	return fmt.Sprintf("%s: %s", showKey(key), message)
}

// wants names a type in the reader's words.
func wants(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return `a duration like "10s"`
	case reflect.TypeFor[Size]():
		return `a size like "64MiB"`
	case reflect.TypeFor[PortRange]():
		return `a range of ports like "10000-20000"`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint64:
		return "a whole number of 0 or more"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return `a list of strings like ["a", "b"]`
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return "a table"
	default:
		return "a string"
	}
}

// fields returns the TOML keys of a struct with their types, in the order they are declared.
func fields(t reflect.Type) func(yield func(string, reflect.Type) bool) {
	return func(yield func(string, reflect.Type) bool) {
		for f := range t.Fields() {
			if tag := f.Tag.Get("toml"); tag != "-" && !yield(tag, f.Type) {
				return
			}
		}
	}
}

// typeAt returns the type that path leads to from root, nil if there is none.
func typeAt(root reflect.Type, path []string) reflect.Type {
	t := root
	for _, part := range path {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		var next reflect.Type
		switch t.Kind() {
		case reflect.Map:
			next = t.Elem()
		case reflect.Struct:
			for name, ft := range fields(t) {
				if strings.EqualFold(name, part) {
					next = ft
				}
			}
		}
		if next == nil {
			return nil
		}
		t = next
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// showKey writes a path as TOML does.
func showKey(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		if parts[i] = p; strings.ContainsFunc(p, func(r rune) bool { return !isBare(r) }) || p == "" {
			parts[i] = fmt.Sprintf("%q", p)
		}
	}
	return strings.Join(parts, ".")
}

// isBare reports whether a TOML key may hold r without quotes.
func isBare(r rune) bool {
	return r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}
