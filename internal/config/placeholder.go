// This file is the placeholder engine: text/template with a fixed set of names and functions, checked
// as a tree before anything is rendered, so that a typo in a branch that isn't taken today is found too.

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// Values is what placeholders may name: {{.Workdir}}, {{.Port.http}} and so on.
type Values struct {
	// Workdir is the node's directory, absolute.
	Workdir string
	// ID is the donation's, Name the name it was given (may be empty).
	ID, Name string
	// Port holds the sticky ports by name.
	Port map[string]int
	// StartupToken and SeedToken are fresh at each spawn.
	StartupToken, SeedToken string
	// OwnerKeys, PartyID, BootstrapNodes and Profile are the provisioner's; each may be empty.
	OwnerKeys      []string
	PartyID        string
	BootstrapNodes []string
	Profile        string
	// UID is the user that the node runs as.
	UID uint32
}

// maxRendered bounds what one string may render to; a guard takes no request of many megabytes.
const maxRendered = 1 << 20

// functions may be called in placeholders, beside those of allowedBuiltins.
var functions = template.FuncMap{
	"json":       toJSON,
	"toml":       toTOML,
	"shellquote": shellQuote,
	"join":       strings.Join,
	"oneof":      oneOf,
}

// allowedBuiltins are the functions of text/template that may be used. index isn't: it reads a missing port
// as 0. html, js and urlquery have no use here and call could hide what is called.
var allowedBuiltins = []string{"and", "or", "not", "eq", "ne", "len", "print", "printf"}

// expand renders one string of t.
func expand(t *Template, text string, v *Values) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", errors.New("a NUL character can't be part of it")
	}
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	tmpl, err := template.New("").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return "", fmt.Errorf("%s: %s", quoteShort(text), cleanError(err))
	}
	if err := checkTree(t, tmpl); err != nil {
		return "", err
	}
	var out limitedBuilder
	if err := tmpl.Execute(&out, v); errors.Is(err, errTooLong) {
		return "", fmt.Errorf("%s: %w", quoteShort(text), err)
	} else if err != nil {
		return "", errors.New(cleanError(err))
	}
	if strings.ContainsRune(out.String(), 0) {
		return "", fmt.Errorf("%s: a value with a NUL character can't be part of it", quoteShort(text))
	}
	return out.String(), nil
}

var errTooLong = fmt.Errorf("it renders to more than %s", Size(maxRendered))

// limitedBuilder is a strings.Builder that stops an execution that writes too much.
type limitedBuilder struct{ strings.Builder }

func (b *limitedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxRendered {
		return 0, errTooLong
	}
	return b.Builder.Write(p)
}

// checkTree finds names that don't exist, functions that aren't offered and constructs that a single string
// has no use for.
func checkTree(t *Template, tmpl *template.Template) error {
	if tmpl.Tree == nil || len(tmpl.Templates()) > 1 {
		return errors.New("{{define}} and {{block}} can't be used: each string stands alone")
	}
	c := treeCheck{t: t}
	c.walk(tmpl.Tree.Root)
	return c.err
}

// treeCheck walks one parsed string and keeps the first mistake.
type treeCheck struct {
	t   *Template
	err error
}

func (c *treeCheck) fail(n parse.Node, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("{{%s}}: %s", n, fmt.Sprintf(format, args...))
	}
}

func (c *treeCheck) walk(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil { // no {{else}}
			return
		}
		for _, child := range n.Nodes {
			c.walk(child)
		}
	case *parse.ActionNode:
		c.walk(n.Pipe)
	case *parse.IfNode:
		c.branch(&n.BranchNode)
	case *parse.WithNode:
		c.branch(&n.BranchNode)
	case *parse.RangeNode:
		// Counting loops could run for ever without writing; lists end.
		if f, ok := onlyField(n.Pipe); !ok || f != "OwnerKeys" && f != "BootstrapNodes" {
			c.fail(n.Pipe, "range goes over .OwnerKeys or .BootstrapNodes only")
		}
		c.branch(&n.BranchNode)
	case *parse.PipeNode:
		for _, cmd := range n.Cmds {
			for _, arg := range cmd.Args {
				c.walk(arg)
			}
		}
	case *parse.ChainNode:
		c.walk(n.Node)
	case *parse.FieldNode:
		c.name(n, n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			c.name(n, n.Ident[1:])
		}
	case *parse.IdentifierNode:
		if _, ours := functions[n.Ident]; !ours && !slices.Contains(allowedBuiltins, n.Ident) {
			c.fail(n, "this function isn't offered; there are: %s", strings.Join(functionNames(), ", "))
		}
	case *parse.TemplateNode:
		c.fail(n, "{{template}} can't be used: each string stands alone")
	}
}

func (c *treeCheck) branch(n *parse.BranchNode) {
	c.walk(n.Pipe)
	c.walk(n.List)
	c.walk(n.ElseList)
}

// name checks a field path such as Port.http.
func (c *treeCheck) name(n parse.Node, path []string) {
	known := valueNames()
	switch {
	case !slices.Contains(known, path[0]):
		c.fail(n, "there is no such placeholder; there are: .%s", strings.Join(known, ", ."))
	case path[0] != "Port" && len(path) > 1:
		c.fail(n, ".%s has no parts", path[0])
	case path[0] != "Port":
	case len(c.t.Ports) == 0:
		c.fail(n, "the template has no ports; name them: ports = [...]")
	case len(path) != 2 || !slices.Contains(c.t.Ports, path[1]):
		c.fail(n, "there is no such port; there are: .Port.%s", strings.Join(c.t.Ports, ", .Port."))
	}
}

// onlyField returns the name if p is a single field of the values.
func onlyField(p *parse.PipeNode) (string, bool) {
	if len(p.Cmds) != 1 || len(p.Cmds[0].Args) != 1 {
		return "", false
	}
	switch n := p.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		return n.Ident[0], len(n.Ident) == 1
	case *parse.VariableNode:
		return n.Ident[len(n.Ident)-1], n.Ident[0] == "$" && len(n.Ident) == 2
	}
	return "", false
}

// valueNames returns the fields of Values in their order.
func valueNames() []string {
	t := reflect.TypeFor[Values]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Name
	}
	return names
}

// functionNames returns every function that may be called, sorted.
func functionNames() []string {
	names := slices.Clone(allowedBuiltins)
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// cleanError takes the template package's own bookkeeping out of its messages and keeps the placeholder:
// `template: :1:2: executing "" at <.Foo>: reason` becomes `{{.Foo}}: reason`.
func cleanError(err error) string {
	message := err.Error()
	if _, rest, ok := strings.Cut(message, `executing "" at <`); ok {
		if at, reason, ok := strings.Cut(rest, ">: "); ok {
			_, inner, called := strings.Cut(reason, "error calling ")
			if _, inner, ok = strings.Cut(inner, ": "); called && ok {
				reason = inner
			}
			return "{{" + at + "}}: " + reason
		}
	}
	if rest, ok := strings.CutPrefix(message, "template: :"); ok {
		if _, reason, ok := strings.Cut(rest, ": "); ok {
			return reason
		}
	}
	return message
}

// quoteShort quotes the beginning of a text for a message.
func quoteShort(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

// toJSON writes a value as JSON; an empty list is [], and <, > and & stay readable.
func toJSON(v any) (string, error) {
	if list, ok := v.([]string); ok && list == nil {
		return "[]", nil
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// toTOML writes a string, number, boolean or list as TOML. JSON's form of those is TOML too, except that
// TOML wants the delete character escaped.
func toTOML(v any) (string, error) {
	switch v.(type) {
	case string, []string, int, uint32, bool:
	default:
		return "", fmt.Errorf("a %T can't be written as TOML", v)
	}
	s, err := toJSON(v)
	return strings.ReplaceAll(s, "\x7f", `\u007f`), err
}

// shellQuote makes one word for sh of anything.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// oneOf returns value if it is allowed, the first of the allowed if value is empty, and an error otherwise:
// what a borrower chose is checked before a node sees it.
func oneOf(value string, allowed ...string) (string, error) {
	switch {
	case len(allowed) == 0:
		return "", errors.New("oneof needs the values that are allowed")
	case value == "":
		return allowed[0], nil
	case slices.Contains(allowed, value):
		return value, nil
	}
	return "", fmt.Errorf("%q isn't allowed; allowed are: %s", value, strings.Join(allowed, ", "))
}
