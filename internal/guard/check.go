// This file checks start requests against the guard's own limits and puts the errors of a start into words.

package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a start request, far above what templates need.
const (
	maxWords = 4096
	maxFiles = 256
	maxGrace = 24 * time.Hour
	selfPath = "/proc/self/exe"
)

// check returns the executable of a request that is well-formed and allowed.
func (g *Guard) check(req StartRequest) (string, error) {
	if err := wellFormed(req); err != nil {
		return "", &Error{Code: CodeInvalid, Message: err.Error()}
	}
	switch {
	case !g.hello.Root && req.UID != 0 && int(req.UID) != os.Getuid():
		return "", &Error{Code: CodeRefused, Message: fmt.Sprintf("uid %d: this guard isn't root, so its nodes run as its own user", req.UID)}
	case g.hello.Root && (req.UID < g.cfg.UIDMin || req.UID > g.cfg.UIDMax):
		return "", &Error{Code: CodeRefused, Message: fmt.Sprintf("uid %d is outside the range %d to %d that this guard allows", req.UID, g.cfg.UIDMin, g.cfg.UIDMax)}
	}
	if err := g.checkTTL(req.TTL); err != nil {
		return "", err
	}
	if req.Command == SelfCommand {
		return selfPath, nil
	}
	path, err := lookPath(req.Command, req.Env)
	if err != nil {
		return "", &Error{Code: CodeFailed, Message: err.Error()}
	}
	if !g.cfg.allows(path) {
		return "", &Error{Code: CodeRefused, Message: fmt.Sprintf("%s isn't among the executables that this guard allows", path)}
	}
	return path, nil
}

// wellFormed returns an error that names what is wrong with a request.
func wellFormed(req StartRequest) error {
	switch {
	case !validID(req.Spawn) || !strings.HasPrefix(req.Spawn, "spn_"):
		return fmt.Errorf("spawn %q isn't a spawn id", req.Spawn)
	case !validID(req.Donation) || !strings.HasPrefix(req.Donation, "don_"):
		return fmt.Errorf("donation %q isn't a donation id", req.Donation)
	case req.Command == "":
		return errors.New("the command is empty")
	case req.Command != SelfCommand && strings.Contains(req.Command, "/") && filepath.Clean(req.Command) != req.Command,
		strings.Contains(req.Command, "/") && !filepath.IsAbs(req.Command):
		return fmt.Errorf("command %q: name a plain absolute path, or a program without a slash", req.Command)
	case req.StopSignal < 1 || req.StopSignal > 64:
		return fmt.Errorf("stop signal %d isn't a signal", req.StopSignal)
	case req.Grace < 0 || req.Grace > maxGrace:
		return fmt.Errorf("grace %s isn't between 0 and %s", req.Grace, maxGrace)
	case req.TTL < 0:
		return fmt.Errorf("a lease of %s is negative", req.TTL)
	case req.LogMax < 0, req.Limits.Memory < 0, req.Limits.CPU < 0, req.Limits.Pids < 0:
		return errors.New("a limit is negative")
	case len(req.Args) > maxWords, len(req.Env) > maxWords, len(req.Files) > maxFiles:
		return errors.New("too many arguments, variables or files")
	}
	for _, word := range append(append([]string{req.Command}, req.Args...), req.Env...) {
		if strings.ContainsRune(word, 0) {
			return errors.New("a NUL byte in the command, an argument or a variable")
		}
	}
	for _, v := range req.Env {
		if strings.IndexByte(v, '=') < 1 {
			return errors.New("a variable of the environment isn't NAME=value")
		}
	}
	for _, f := range req.Files {
		if !localPath(f.Path) {
			return fmt.Errorf("file %q isn't a path below the workdir", f.Path)
		}
	}
	return nil
}

// localPath reports whether path names something below a directory.
func localPath(path string) bool {
	return filepath.IsLocal(path) && filepath.Clean(path) != "." && !strings.ContainsRune(path, 0)
}

// lookPath finds the command as the node's own PATH says.
func lookPath(command string, env []string) (string, error) {
	if strings.Contains(command, "/") {
		return command, nil
	}
	var path string
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		candidate := filepath.Join(dir, command)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%s: no such program in the template's PATH (%q); install it, or name it by its absolute path", command, path)
}

// transient are the errors that pass by themselves. A full disk is one: it says nothing about the node.
var transient = []unix.Errno{
	unix.ETXTBSY, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM, unix.ENOSPC, unix.EDQUOT,
}

// startError puts an error of a start on the wire.
func startError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	for _, errno := range transient {
		if errors.Is(err, errno) {
			return &Error{Code: CodeTransient, Message: err.Error()}
		}
	}
	return &Error{Code: CodeFailed, Message: err.Error()}
}

// explain adds to an error of fork and exec what it is about, and what to do.
func explain(err error, path string, uid uint32) error {
	if err == nil {
		return nil
	}
	var hint string
	switch {
	case errors.Is(err, unix.ENOENT):
		hint = "install it, or correct the template's command"
		if _, errStat := os.Stat(path); errStat == nil {
			hint = "the file is there, but the interpreter or loader that it names isn't"
		}
	case errors.Is(err, unix.EACCES):
		hint = fmt.Sprintf("it, and every directory above it, must be executable for uid %d", uid)
		if info, errStat := os.Stat(path); errStat == nil && info.Mode().Perm()&0o111 == 0 {
			hint = "it is not executable; chmod +x it"
		} else if errStat == nil && info.IsDir() {
			hint = "it is a directory"
		}
	case errors.Is(err, unix.ENOEXEC):
		hint = "it is no program for this machine; a script needs a #! line"
	case errors.Is(err, unix.ETXTBSY):
		hint = "somebody is still writing it"
	case errors.Is(err, unix.EAGAIN):
		hint = "a limit on processes is reached (ulimit -u, TasksMax, pids.max)"
	case errors.Is(err, unix.EMFILE):
		hint = "the guard's descriptors are used up; raise LimitNOFILE"
	case errors.Is(err, unix.E2BIG):
		hint = "its arguments and environment are too long together"
	default:
		return fmt.Errorf("starting %s: %w", path, err)
	}
	return fmt.Errorf("starting %s: %w: %s", path, err, hint)
}
