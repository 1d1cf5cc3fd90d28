// This file tests that a token doesn't get out by accident.

package donation_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/serfab/cadre-hostd/internal/donation"
)

const token = "hunter2hunter2"

func TestSecretsAreNeverPrinted(t *testing.T) {
	secret := donation.NewSecret(token)
	hidden := struct{ unexported donation.Secret }{secret}
	spawn := donation.Spawn{ID: "spn_1", SeedToken: secret, StartupToken: secret}
	values := map[string]any{
		"the secret": secret, "a pointer": &secret, "a slice": []donation.Secret{secret}, "a map": map[string]donation.Secret{"k": secret},
		"an unexported field": hidden, "a spawn": spawn, "a record": donation.Record{Spawn: &spawn},
		"a launch": donation.LaunchOf(donation.Record{Spawn: &spawn}), "a new spawn": donation.NewSpawn{SeedToken: secret},
		"an error": donation.Errorf(donation.CodeInternal, "bad token %v", secret), "a wrapped one": fmt.Errorf("%w: %s", errors.New("bad"), secret),
	}
	encodings := []string{token, hex.EncodeToString([]byte(token)), fmt.Sprint([]byte(token)), base64.StdEncoding.EncodeToString([]byte(token))}
	silent := func(how, printed string) {
		t.Helper()
		for _, e := range encodings {
			if strings.Contains(strings.ToLower(printed), strings.ToLower(e)) {
				t.Errorf("%s: %s", how, printed)
			}
		}
	}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%t", "%08.3f"} {
			silent(name+" as "+verb, fmt.Sprintf(verb, v))
		}
		silent(name+" printed", fmt.Sprintln(v))
		text, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s can't be marshalled: %v", name, err)
		}
		silent(name+" as JSON", string(text))

		var plain strings.Builder
		slog.New(slog.NewTextHandler(&plain, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&plain, nil)).Info("x", "v", v)
		silent(name+" in slog", plain.String())

		for _, enc := range []zapcore.Encoder{zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.NewConsoleEncoder(zapcore.EncoderConfig{})} {
			line, err := enc.EncodeEntry(zapcore.Entry{}, []zap.Field{zap.Any("any", v), zap.Reflect("reflect", v)})
			if err != nil {
				t.Errorf("zap of %s: %v", name, err)
				continue
			}
			silent(name+" in zap", line.String())
		}
	}
	wantSame(t, "printed", fmt.Sprintf("%v %s %q %d", secret, secret, secret, secret), "*** *** *** ***")
	text, err := json.Marshal(map[string]any{"t": secret})
	if err != nil || string(text) != `{"t":""}` {
		t.Errorf("marshalled as %s, %v", text, err)
	}
	core, logs := observer.New(zap.InfoLevel)
	zap.New(core).Info("x", zap.Stringer("t", secret))
	wantSame(t, "a zap.Stringer", logs.All()[0].ContextMap()["t"], any("***"))
}

func TestSecretRevealsWhatItWasGiven(t *testing.T) {
	if s := donation.NewSecret(token); s.Reveal() != token || s.IsZero() {
		t.Errorf("revealed %q, zero %v", s.Reveal(), s.IsZero())
	}
	for _, none := range []donation.Secret{{}, donation.NewSecret("")} {
		if none.Reveal() != "" || !none.IsZero() {
			t.Errorf("no token is revealed as %q, zero %v", none.Reveal(), none.IsZero())
		}
	}
}

func TestFreshTokens(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		seed, startup := donation.NewSeedToken().Reveal(), donation.NewStartupToken().Reveal()
		if b, err := base64.RawURLEncoding.DecodeString(seed); err != nil || len(b) != 32 {
			t.Fatalf("seed token %q: %d bytes, %v", seed, len(b), err)
		}
		if b, err := hex.DecodeString(startup); err != nil || len(b) != 16 || startup != strings.ToLower(startup) {
			t.Fatalf("startup token %q: %d bytes, %v", startup, len(b), err)
		}
		if seen[seed] || seen[startup] {
			t.Fatal("a token came twice")
		}
		seen[seed], seen[startup] = true, true
	}
}
