// This file holds the log flags of the processes, and the guard's logger.

package cli

import (
	"io"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The values of --log-format. Auto is console on a terminal, else JSON.
const (
	logAuto    = "auto"
	logConsole = "console"
	logJSON    = "json"
)

// logFlags adds --log-format and --log-level.
func logFlags(cmd *cobra.Command, format, level *string) {
	cmd.Flags().StringVar(format, "log-format", logAuto, "the `FORM` of the log: console, json, or auto, which is console on a terminal")
	cmd.Flags().StringVar(level, "log-level", "", "the lowest `LEVEL` that is logged: debug, info, warn or error (default info, or what the configuration says)")
	must(cmd.RegisterFlagCompletionFunc("log-format", fixed(logAuto, logConsole, logJSON)))
	must(cmd.RegisterFlagCompletionFunc("log-level", fixed("debug", "info", "warn", "error")))
}

// checkLogFlags refuses values that mean nothing.
func checkLogFlags(cmd *cobra.Command, format, level string) error {
	if !slices.Contains([]string{logAuto, logConsole, logJSON}, format) {
		return usagef(cmd, "--log-format=%s is none of auto, console and json", format)
	}
	if !slices.Contains([]string{"", "debug", "info", "warn", "error"}, level) {
		return usagef(cmd, "--log-level=%s is none of debug, info, warn and error", level)
	}
	return nil
}

// newLogger logs to w; format and level have been checked. The level can be moved afterwards.
func newLogger(w io.Writer, format, level string) (*zap.Logger, *zap.AtomicLevel) {
	at := zap.NewAtomicLevel()
	if level != "" {
		// It was one of the four; a name that zap didn't know would leave info.
		_ = at.UnmarshalText([]byte(level))
	}
	conf := zap.NewProductionEncoderConfig()
	conf.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	conf.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(conf)
	if format == logConsole || format == logAuto && isTerminal(w) {
		conf.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		conf.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(conf)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), at)), &at
}
