// This file finds the place of every key of a TOML document, so that a mistake that only a later check
// sees (a port that doesn't exist, a typo in a placeholder) is reported with its line and column too.

package config

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// document is one file's text, the places of its keys, and the problems found in it.
type document struct {
	file     string
	data     []byte
	places   map[string]place
	problems []Problem
}

// place is where a key is defined.
type place struct {
	// offset is of the value if it is written on its own, of the key otherwise.
	offset uint32
	kind   unstable.Kind
}

// placeKey joins a path. Keys are folded because go-toml matches field names without regard to case; two
// environment variables that differ in case only share a place, which costs a message its exact line.
func placeKey(path []string) string { return strings.ToLower(strings.Join(path, "\x00")) }

// newDocument indexes data. A syntax error ends the index early; decoding reports it.
func newDocument(file string, data []byte) *document {
	d := &document{file: file, data: data, places: map[string]place{}}
	var p unstable.Parser
	p.Reset(data)
	var table []string
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			var at uint32
			table, at = keyOf(e, nil)
			d.add(table, place{at, e.Kind})
		case unstable.KeyValue:
			d.addKeyValue(table, e)
		}
	}
	return d
}

// keyOf returns the path of a key below prefix, and where it begins.
func keyOf(n *unstable.Node, prefix []string) (path []string, at uint32) {
	path = append(path, prefix...)
	first := true
	for it := n.Key(); it.Next(); first = false {
		if first {
			at = it.Node().Raw.Offset
		}
		path = append(path, string(it.Node().Data))
	}
	return path, at
}

func (d *document) add(path []string, p place) {
	// A table that is only named in a longer header still has a place: the header's.
	for n := len(path); n > 0; n-- {
		if _, ok := d.places[placeKey(path[:n])]; !ok || n == len(path) {
			d.places[placeKey(path[:n])] = p
		}
	}
}

func (d *document) addKeyValue(prefix []string, kv *unstable.Node) {
	path, at := keyOf(kv, prefix)
	value := kv.Value()
	p := place{at, value.Kind}
	if value.Raw.Length > 0 {
		p.offset = value.Raw.Offset
	}
	d.add(path, p)
	i := 0
	for it := value.Children(); it.Next(); i++ {
		child := it.Node()
		switch {
		case child.Kind == unstable.KeyValue:
			d.addKeyValue(path, child)
		case child.Raw.Length > 0:
			d.add(append(slices.Clip(path), strconv.Itoa(i)), place{child.Raw.Offset, child.Kind})
		}
	}
}

// has reports whether the document defines path.
func (d *document) has(path ...string) bool {
	_, ok := d.places[placeKey(path)]
	return ok
}

// errorf notes a problem at path or, if path isn't in the document, at the nearest table above it.
func (d *document) errorf(path []string, format string, args ...any) {
	for n := len(path); n > 0; n-- {
		if p, ok := d.places[placeKey(path[:n])]; ok {
			line, column := d.position(int(p.offset))
			d.errorAt(line, column, format, args...)
			return
		}
	}
	d.errorAt(0, 0, format, args...)
}

// errorAt notes a problem at a place.
func (d *document) errorAt(line, column int, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, line, column, fmt.Sprintf(format, args...)})
}

// position turns an offset into line and column, both from 1; columns count bytes.
func (d *document) position(offset int) (line, column int) {
	before := d.data[:offset]
	return 1 + bytes.Count(before, []byte("\n")), offset - bytes.LastIndexByte(before, '\n')
}
