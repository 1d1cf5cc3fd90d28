// This file is the floor: the least that any supervisor with a durable record has to do. A bare parent, a process of its
// own, waits for its child, commits one row with synchronous=FULL, and forks again.

package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// floorCommand makes this binary the bare parent. It then reads one order a line, "VERB NUMBER", and answers each with a
// line of JSON: how long each step took, in nanoseconds.
const floorCommand = "floor"

// The verbs: have so many children; kill so many and fork again.
const (
	growFloor = "grow"
	killFloor = "kill"
)

// answer is the bare parent's.
type answer struct {
	Nanos []time.Duration `json:"nanos"`
	Error string          `json:"error,omitempty"`
}

// floor is the bare parent as the benchmark sees it.
type floor struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	lines  *bufio.Scanner
}

// startFloor starts a bare parent with its database in dir, which it makes.
func startFloor(dir string) (*floor, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &floor{cmd: exec.Command("/proc/self/exe", floorCommand, dir)}
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ends with its input, not with Ctrl-C
	var err error
	if f.orders, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	f.lines = bufio.NewScanner(out)
	f.lines.Buffer(nil, 1<<20)
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the bare parent: %w", err)
	}
	if _, err := f.ask(growFloor, 0); err != nil { // its database is open now
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

func (f *floor) pid() int { return f.cmd.Process.Pid }

// ask gives an order and returns how long each step took.
func (f *floor) ask(verb string, n int) ([]time.Duration, error) {
	if _, err := fmt.Fprintln(f.orders, verb, n); err != nil {
		return nil, fmt.Errorf("the bare parent has left: %w", err)
	}
	if !f.lines.Scan() {
		return nil, fmt.Errorf("the bare parent has left: %w", errors.Join(f.lines.Err(), io.ErrUnexpectedEOF))
	}
	var a answer
	if err := json.Unmarshal(f.lines.Bytes(), &a); err != nil {
		return nil, fmt.Errorf("the bare parent's answer: %w", err)
	}
	if a.Error != "" {
		return nil, fmt.Errorf("the bare parent: %s", a.Error)
	}
	return a.Nanos, nil
}

// stop ends the bare parent and its children.
func (f *floor) stop() error {
	return errors.Join(f.orders.Close(), f.cmd.Wait())
}

// parent is the bare parent itself.
type parent struct {
	db       *sql.DB
	insert   *sql.Stmt
	path     string
	null     *os.File
	children []int
	next     int
}

// runFloor is the bare parent: it obeys until in ends, then kills its children.
func runFloor(dir string, in io.Reader, out io.Writer) (err error) {
	// The children's death signal is tied to the thread that forks them.
	runtime.LockOSThread()
	p, err := newParent(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for {
		var verb string
		var n int
		if _, err := fmt.Fscanln(in, &verb, &n); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a := answer{Nanos: []time.Duration{}}
		step := p.grow
		if verb == killFloor {
			step = p.kill
		} else {
			n -= len(p.children)
		}
		for range n {
			d, err := step()
			if err != nil {
				a.Error = err.Error()
				break
			}
			a.Nanos = append(a.Nanos, d)
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
}

func newParent(dir string) (*parent, error) {
	path, err := exec.LookPath("sleep")
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	// As the store opens its own.
	pragmas := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(dir, "floor.db")}).EscapedPath()+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE starts (id INTEGER PRIMARY KEY, died INTEGER NOT NULL, at INTEGER NOT NULL) STRICT`); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	insert, err := db.Prepare(`INSERT INTO starts (died, at) VALUES (?, ?)`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &parent{db: db, insert: insert, path: path, null: null}, nil
}

// start commits that a child is about to be started, and starts it.
func (p *parent) start(died int) (pid int, err error) {
	if _, err := p.insert.Exec(died, time.Now().UnixMicro()); err != nil {
		return 0, err
	}
	fd := p.null.Fd()
	return syscall.ForkExec(p.path, []string{"sleep", "infinity"}, &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{fd, fd, fd}, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// grow starts one child more.
func (p *parent) grow() (time.Duration, error) {
	began := time.Now()
	pid, err := p.start(0)
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	p.children = append(p.children, pid)
	return took, nil
}

// kill kills the next child, waits for its end, and starts another.
func (p *parent) kill() (time.Duration, error) {
	if len(p.children) == 0 {
		return 0, errors.New("there is no child to kill")
	}
	i := p.next % len(p.children)
	p.next++
	began := time.Now()
	if err := syscall.Kill(p.children[i], syscall.SIGKILL); err != nil {
		return 0, err
	}
	died, err := waitForAny()
	if err != nil {
		return 0, err
	}
	if p.children[i], err = p.start(died); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// waitForAny waits for the end of any child.
func waitForAny() (int, error) {
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return pid, err
		}
	}
}

// close ends the children and the database.
func (p *parent) close() error {
	for _, pid := range p.children {
		_ = syscall.Kill(pid, syscall.SIGKILL) // ours and unreaped: the pid is nobody else's
	}
	for range p.children {
		if _, err := waitForAny(); err != nil {
			break // it was never started
		}
	}
	return errors.Join(p.insert.Close(), p.db.Close(), p.null.Close())
}
