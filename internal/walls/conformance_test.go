// This file tests that docs/conformance.md tells the truth: each of its rows has a test that carries the row's id
// in its name, and every test that it names exists.

package walls

import (
	"bufio"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testFunc  = regexp.MustCompile(`^func ((?:Test|Fuzz)([A-Z]\d{2})\w*)\(`)
	tableRow  = regexp.MustCompile(`^\| ([A-Z]\d{2}) \|`)
	testNamed = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
)

// proofs maps the ids to the tests of the module that carry them, and names all of those tests.
func proofs(t *testing.T) (byID map[string][]string, names map[string]bool) {
	t.Helper()
	byID, names = map[string][]string{}, map[string]bool{}
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(d.Name(), "_test.go"):
			return nil
		}
		return eachLine(path, func(line string) {
			if m := testFunc.FindStringSubmatch(line); m != nil {
				byID[m[2]] = append(byID[m[2]], m[1])
				names[m[1]] = true
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return byID, names
}

func eachLine(path string, do func(line string)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		do(lines.Text())
	}
	return lines.Err()
}

func TestEveryConformanceRowHasItsTest(t *testing.T) {
	byID, names := proofs(t)
	rows := map[string]bool{}
	err := eachLine(filepath.Join(root(t), "docs", "conformance.md"), func(line string) {
		m := tableRow.FindStringSubmatch(line)
		if m == nil {
			return
		}
		id := m[1]
		if rows[id] {
			t.Errorf("row %s stands twice", id)
		}
		rows[id] = true
		if len(byID[id]) == 0 {
			t.Errorf("row %s has no test: name one Test%s_…", id, id)
		}
		for _, n := range testNamed.FindAllStringSubmatch(line, -1) {
			if !names[n[1]] {
				t.Errorf("row %s names %s, which doesn't exist: run `make conformance`", id, n[1])
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range claimed() {
		if !rows[id] {
			t.Errorf("row %s is missing in docs/conformance.md", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		if !rows[id] && !slices.Contains(unclaimed, id) {
			t.Errorf("%s: docs/conformance.md doesn't explain this id: add row %s", strings.Join(byID[id], ", "), id)
		}
	}
}

// unclaimed are rows that tests prove in part while the page doesn't claim the whole yet.
var unclaimed = []string{"P14"}

// claimed are the rows that the page must have: S01–S29, L01–L17 and P01–P15, without P14 (see the page).
func claimed() []string {
	var ids []string
	for i := 1; i <= 29; i++ {
		ids = append(ids, fmt.Sprintf("S%02d", i))
	}
	for i := 1; i <= 17; i++ {
		ids = append(ids, fmt.Sprintf("L%02d", i))
	}
	for i := 1; i <= 15; i++ {
		if i != 14 {
			ids = append(ids, fmt.Sprintf("P%02d", i))
		}
	}
	return ids
}
