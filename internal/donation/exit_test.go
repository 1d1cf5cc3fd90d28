// This file tests how ends are said in words, and which of them are charged.

package donation_test

import (
	"testing"

	"github.com/serfab/cadre-hostd/internal/donation"
)

func TestS10_OnlyDeathsThatNobodyAskedForAreCharged(t *testing.T) {
	for reason, want := range map[donation.Reason]bool{
		donation.ReasonCrash:        true,
		donation.ReasonStartFailed:  true,
		donation.ReasonGuardLost:    true,
		donation.ReasonLost:         false, // its own charge, made when it began, stands
		donation.ReasonReboot:       false,
		donation.ReasonTerminate:    false,
		donation.ReasonRestart:      false,
		donation.ReasonGiveUp:       false,
		donation.ReasonDrain:        false,
		donation.ReasonAbandoned:    false,
		donation.ReasonGuardStop:    false,
		donation.ReasonLeaseExpired: false,
		"":                          false,
		"one of a later version":    false,
	} {
		if got := reason.Charged(); got != want {
			t.Errorf("%q is charged: %v, want %v", reason, got, want)
		}
	}
}

func TestExitInWords(t *testing.T) {
	for want, exit := range map[string]donation.Exit{
		"exit status 0":                          {Reason: donation.ReasonCrash, Known: true},
		"exit status 3":                          {Reason: donation.ReasonCrash, Known: true, Code: 3},
		"killed by SIGSEGV":                      {Reason: donation.ReasonCrash, Known: true, Signal: 11},
		"killed by signal 63":                    {Reason: donation.ReasonCrash, Known: true, Signal: 63},
		"killed by SIGKILL (out of memory)":      {Reason: donation.ReasonCrash, Known: true, Signal: 9, OOM: true},
		"exit status 0 (restart)":                {Reason: donation.ReasonRestart, Known: true},
		"killed by SIGTERM (lease-expired)":      {Reason: donation.ReasonLeaseExpired, Known: true, Signal: 15},
		"exit status 1":                          {Reason: donation.ReasonGuardLost, Known: true, Code: 1},
		"unknown (guard lost)":                   {Reason: donation.ReasonGuardLost},
		"unknown":                                {Reason: donation.ReasonCrash},
		"unknown (out of memory)":                {Reason: donation.ReasonCrash, OOM: true},
		"unknown (terminate)":                    {Reason: donation.ReasonTerminate},
		"exit status 4":                          {Known: true, Code: 4},
		"did not start: exec: no such file":      {Reason: donation.ReasonStartFailed, Message: "exec: no such file"},
		"never started (the guard was replaced)": {Reason: donation.ReasonLost},
		"ended by a reboot":                      {Reason: donation.ReasonReboot},
	} {
		if got := exit.String(); got != want {
			t.Errorf("%+v: %q, want %q", exit, got, want)
		}
	}
}
