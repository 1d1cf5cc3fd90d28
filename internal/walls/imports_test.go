// This file tests the import rules: each of our packages may import those of ours that the table says, and a
// technology only where it is at home.

package walls

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/serfab/cadre-hostd"

// pkg is what `go list -json` says of one package.
type pkg struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// name is the import path within the module.
func (p pkg) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// sources are the absolute paths of p's product files.
func (p pkg) sources() []string {
	files := make([]string, len(p.GoFiles))
	for i, f := range p.GoFiles {
		files[i] = filepath.Join(p.Dir, f)
	}
	return files
}

// packages lists every package of the module.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		list = append(list, p)
	}
}

// root is the module's directory, two above this package's.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// rule says which of our packages one may import, and why no other.
type rule struct {
	may []string
	why string
}

// rules has a row for every package of the module (and for internal/lease, which is to come). Tests may import more: they wire things together.
var rules = map[string]rule{
	"cmd/cadre-hostd": {[]string{"internal/cli"}, "main only turns an error into an exit code"},
	"internal/cli": {
		[]string{"internal/api", "internal/config", "internal/daemon", "internal/donation", "internal/guard", "internal/lease", "internal/nodeapi"},
		"a command talks to the API client or starts a process; the client never opens the database",
	},
	"internal/daemon": {
		[]string{
			"internal/api", "internal/config", "internal/donation", "internal/guard", "internal/lease", "internal/nodeapi",
			"internal/orchestrator", "internal/orchestrator/process", "internal/store", "internal/supervisor", "migrations",
		},
		"the daemon wires everything, but knows nothing of the command line",
	},
	"internal/api":        {[]string{"internal/donation"}, "the API is a surface of the domain and works with any daemon behind its Backend"},
	"internal/supervisor": {[]string{"internal/donation"}, "the supervisor decides on the domain's facts, wherever nodes run and however records are kept"},
	"internal/lease":      {nil, "a lease knows nothing of processes or clusters"},
	"internal/donation":   {nil, "the domain comes first: the technology implements its interfaces"},
	"internal/store":      {[]string{"internal/donation", "migrations"}, "the store implements the domain's interface and knows SQL, nothing else"},
	"internal/orchestrator": {
		[]string{"internal/donation", "internal/config"},
		"what backends share is rendering and ports; how a node is run is the backend's",
	},
	"internal/orchestrator/process": {
		[]string{"internal/donation", "internal/config", "internal/guard", "internal/nodeapi", "internal/orchestrator"},
		"the process backend runs nodes through the guard, reaches them on their ports, and decides nothing",
	},
	"internal/config":  {nil, "the configuration is values; who uses them is not its business"},
	"internal/guard":   {nil, "the guard acts and decides nothing: no policy, no database, little to go wrong"},
	"internal/nodeapi": {nil, "a node's own HTTP contract, as any node of this field could speak it"},
	"internal/walls":   {nil, "tests about structure have none of their own"},
	"migrations":       {nil, "SQL files and their embedding"},
	"bench": {
		[]string{"internal/api", "internal/config", "internal/donation", "internal/lease", "internal/orchestrator/process"},
		"the benchmark drives the daemon from outside, as any client, and takes its place at the guard for leases",
	},
}

func TestEveryPackageHasItsPlace(t *testing.T) {
	for _, p := range packages(t) {
		if _, ok := rules[p.name()]; !ok {
			t.Errorf("%s has no row in the import rules: say what it may import and why (and draw it in docs/architecture.md)", p.name())
		}
	}
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range packages(t) {
		r, ok := rules[p.name()]
		if !ok {
			continue // TestEveryPackageHasItsPlace says so
		}
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ok && !slices.Contains(r.may, ours) {
				t.Errorf("%s must not import %s: %s", p.name(), ours, r.why)
			}
		}
	}
}

// technology is something that only some packages may know.
type technology struct {
	// match is an import path pattern (path.Match), or a prefix that ends in "/...".
	match string
	// only are the packages that may import it; never, those that may not (all others may).
	only, never []string
	// inTests extends the rule to test files.
	inTests bool
	why     string
}

var technologies = []technology{
	{match: "database/sql/...", only: []string{"internal/store", "bench"}, why: "only the store knows SQL (the benchmark's floor commits one row of its own)"},
	{match: "github.com/jmoiron/sqlx/...", only: []string{"internal/store"}, why: "only the store knows SQL"},
	{match: "modernc.org/...", only: []string{"internal/store", "bench"}, why: "only the store knows SQLite (and the benchmark's floor)"},
	{match: "github.com/pressly/goose/v3/...", only: []string{"internal/store"}, why: "only the store migrates"},
	{match: "os/exec", only: []string{"internal/guard", "bench"}, why: "only the guard starts processes: a child of anybody else would have no guard"},
	{match: "github.com/containerd/cgroups/v3/...", only: []string{"internal/guard"}, why: "only the guard limits processes"},
	{match: "github.com/spf13/cobra", only: []string{"internal/cli"}, why: "the command line ends at internal/cli"},
	{match: "github.com/spf13/pflag", only: []string{"internal/cli"}, why: "the command line ends at internal/cli"},
	{match: "github.com/pelletier/go-toml/v2/...", only: []string{"internal/config", "internal/guard"}, why: "TOML is the form of configuration files only (the guard has its own, root-owned)"},
	{match: "go.uber.org/zap/...", never: []string{"internal/donation", "internal/lease", "internal/config", "internal/nodeapi", "migrations"}, why: "it returns errors and values, and logs nothing"},
	{match: "net/http", never: []string{"internal/donation", "internal/store", "internal/supervisor", "internal/lease", "internal/config"}, why: "transport belongs to the edges"},
	{match: "github.com/google/go-cmp/...", only: []string{}, why: "go-cmp is for tests: it may panic"},
	{match: "testing", only: []string{}, why: "product code doesn't know that it is tested"},
	{match: "github.com/mattn/go-sqlite3", only: []string{}, inTests: true, why: "no cgo: the database is modernc.org/sqlite"},
	{match: "C", only: []string{}, inTests: true, why: "no cgo"},
}

// matches reports whether the import path is of the technology.
func (x technology) matches(imported string) bool {
	if prefix, ok := strings.CutSuffix(x.match, "/..."); ok {
		return imported == prefix || strings.HasPrefix(imported, prefix+"/")
	}
	ok, err := path.Match(x.match, imported)
	return ok && err == nil
}

func (x technology) allows(name string) bool {
	if x.only != nil {
		return slices.Contains(x.only, name)
	}
	return !slices.Contains(x.never, name)
}

func TestTechnologyStaysAtHome(t *testing.T) {
	for _, p := range packages(t) {
		for _, x := range technologies {
			imports := p.Imports
			if x.inTests {
				imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			}
			for _, imported := range imports {
				if x.matches(imported) && !x.allows(p.name()) {
					t.Errorf("%s must not import %s: %s", p.name(), imported, x.why)
				}
			}
		}
	}
}
