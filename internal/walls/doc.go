// Package walls holds no code, only the tests that keep the project's structure as docs/architecture.md draws
// it: who may import whom, which technology lives where, and that every behaviour has its test.
package walls
