// This file tests rules that imports alone don't show, by reading the product's syntax trees.

package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// call is a function or method that only some packages may use.
type call struct {
	// on is the package name before the dot; empty means any receiver.
	on, name string
	only     []string
	why      string
}

const oneForker = "only the guard starts processes: a child of anybody else would have no guard"

var calls = []call{
	{"os", "StartProcess", []string{"internal/guard"}, oneForker},
	{"syscall", "ForkExec", []string{"internal/guard", "bench"}, oneForker},
	{"syscall", "StartProcess", []string{"internal/guard"}, oneForker},
	{"syscall", "Exec", []string{"internal/guard"}, oneForker},
	{"unix", "Exec", []string{"internal/guard"}, oneForker},
	{"os", "Exit", []string{"cmd/cadre-hostd", "internal/guard", "bench"}, "an exit that skips the deferred calls is main's (and that of the guard's own child modes)"},
	{"signal", "Ignore", nil, "an ignored signal is inherited by every child"},
	{
		"", "Reveal",
		[]string{"internal/store", "internal/orchestrator", "internal/orchestrator/process"},
		"a secret is revealed where it is stored and where it goes to the guard, nowhere else",
	},
}

func TestCallsThatHaveOneHome(t *testing.T) {
	for _, p := range packages(t) {
		for file, tree := range parse(t, p.sources(), parser.SkipObjectResolution) {
			ast.Inspect(tree.file, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := c.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				on := ""
				if x, ok := sel.X.(*ast.Ident); ok {
					on = x.Name
				}
				for _, rule := range calls {
					if sel.Sel.Name == rule.name && (rule.on == "" || rule.on == on) && !slices.Contains(rule.only, p.name()) {
						t.Errorf("%s:%d: %s must not call %s: %s", rel(t, file), tree.line(c), p.name(), sel.Sel.Name, rule.why)
					}
				}
				return true
			})
		}
	}
}

func TestNothingStartsInInit(t *testing.T) {
	for _, p := range packages(t) {
		for file, tree := range parse(t, p.sources(), parser.SkipObjectResolution) {
			for _, d := range tree.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
					t.Errorf("%s:%d: func init: what happens at start happens in a named step of somebody's Run", rel(t, file), tree.line(f))
				}
			}
		}
	}
}

func TestEveryFileSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		files := p.sources()
		for _, f := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			files = append(files, filepath.Join(p.Dir, f))
		}
		for file, tree := range parse(t, files, parser.ParseComments|parser.PackageClauseOnly) {
			said := slices.ContainsFunc(tree.file.Comments, func(c *ast.CommentGroup) bool {
				return c.Pos() < tree.file.Package && strings.TrimSpace(c.Text()) != "" // Text leaves //go: directives out
			})
			if !said {
				t.Errorf("%s: its first lines must say what it is for, before the package clause", rel(t, file))
			}
		}
	}
}

// tree is one parsed file.
type tree struct {
	file *ast.File
	fset *token.FileSet
}

func (x tree) line(n ast.Node) int { return x.fset.Position(n.Pos()).Line }

// parse reads the files; one that can't be parsed is an error of the test.
func parse(t *testing.T, files []string, mode parser.Mode) map[string]tree {
	t.Helper()
	trees := map[string]tree{}
	for _, file := range files {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, mode)
		if err != nil {
			t.Error(err)
			continue
		}
		trees[file] = tree{f, fset}
	}
	return trees
}

// rel is the path as the reader of a failure wants it.
func rel(t *testing.T, file string) string {
	t.Helper()
	r, err := filepath.Rel(root(t), file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
