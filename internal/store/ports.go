// This file hands out what a donation keeps for its life: its sticky ports and its user id.

package store

import (
	"math/rand/v2"

	"github.com/serfab/cadre-hostd/internal/donation"
)

// portRange is the range to allocate from and where the next search begins. It starts at random and goes
// round, so that a port that was freed a moment ago isn't the next one handed out. It isn't stored: any
// beginning is right, the table decides.
type portRange struct {
	first, last int
	next        int
}

func newPortRange(first, last int) *portRange {
	return &portRange{first: first, last: last, next: first + rand.IntN(last-first+1)}
}

func (r *portRange) size() int { return r.last - r.first + 1 }

// take returns the next candidate.
func (r *portRange) take() int {
	port := r.next
	r.next++
	if r.next > r.last {
		r.next = r.first
	}
	return port
}

// allocatePorts gives d a port for each of its names: none that is in the table, none that somebody else on
// this machine holds now.
func (w *writeTx) allocatePorts(r *portRange, d donation.NewDonation) error {
	left := r.size() // each candidate is looked at once
	for _, name := range d.PortNames {
		port, err := w.freePort(r, &left, d.PortFree)
		if err != nil {
			return err
		}
		if port == 0 {
			return w.portsExhausted(r, d)
		}
		if _, err := w.exec(`INSERT INTO ports (port, donation, name) VALUES (?, ?, ?)`, port, d.ID, name); err != nil {
			return err
		}
	}
	return nil
}

// freePort returns 0 when all have been looked at.
func (w *writeTx) freePort(r *portRange, left *int, free func(int) bool) (int, error) {
	for ; *left > 0; *left-- {
		port := r.take()
		var taken bool
		if _, err := w.get(`SELECT EXISTS (SELECT 1 FROM ports WHERE port = ?)`, []any{port}, &taken); err != nil {
			return 0, err
		}
		if !taken && (free == nil || free(port)) {
			*left--
			return port, nil
		}
	}
	return 0, nil
}

func (w *writeTx) portsExhausted(r *portRange, d donation.NewDonation) error {
	var used int
	if _, err := w.get(`SELECT count(*) FROM ports WHERE port BETWEEN ? AND ? AND donation <> ?`, []any{r.first, r.last, d.ID}, &used); err != nil {
		return err
	}
	return donation.Errorf(donation.CodePortsExhausted,
		"no %d free ports in %d-%d: %d of %d belong to donations, the others that were looked at are held by other programs; widen ports.range or terminate a donation",
		len(d.PortNames), r.first, r.last, used, r.size())
}

// allocateUID returns the user after the one that was handed out last, going round within the range and
// past every user that a donation still has. A freed one comes back as late as possible: something of
// its former donation may have escaped. An empty range gives 0, the guard's own user.
func (w *writeTx) allocateUID(uids donation.UIDRange) (uint32, error) {
	if uids.Min == 0 {
		return 0, nil
	}
	var last int64
	if _, err := w.get(`SELECT value FROM counters WHERE name = 'last_uid'`, nil, &last); err != nil {
		return 0, err
	}
	first, end := int64(uids.Min), int64(uids.Max)
	for range end - first + 1 {
		last++
		if last < first || last > end {
			last = first
		}
		var held bool
		if _, err := w.get(`SELECT EXISTS (SELECT 1 FROM donations WHERE uid = ? AND uid <> 0 AND (has_workdir = 1 OR status <> 'terminated'))`,
			[]any{last}, &held); err != nil {
			return 0, err
		}
		if !held {
			_, err := w.exec(`UPDATE counters SET value = ? WHERE name = 'last_uid'`, last)
			return uint32(last), err
		}
	}
	return 0, donation.Errorf(donation.CodeUnavailable,
		"every user id in %d-%d belongs to a donation; widen the guard's uid range or terminate a donation", uids.Min, uids.Max)
}
