package agent

import (
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/raft/nodekey"
)

// loadKey reads this node's key, and makes one where there is none: at the first start, or with the first
// quorate that has keys. nil: there is none, and none is needed so far.
func loadKey(cfg config.Config, fresh bool, logger *slog.Logger) (*nodekey.Key, error) {
	if cfg.KeyFile == "" {
		return nil, nil
	}
	needed := len(cfg.Members) > 0 && cfg.Members[0].Key != "" // all have one, or none
	k, made, err := nodekey.LoadOrMake(cfg.KeyFile)
	switch own := cfg.Self().Key; {
	case err != nil && needed:
		return nil, fmt.Errorf("%w: give %s back, or write a key there with \"quorate key new\"", err, cfg.KeyFile)
	case err != nil:
		logger.Warn("this node has no key: its connections with other agents are not protected", "error", err)
		return nil, nil
	case fresh && own != "" && own != k.Name():
		return nil, fmt.Errorf("the configuration says that node %q has the key %s, and %s holds the key %s: correct the one or the other",
			cfg.Node, own, cfg.KeyFile, k.Name())
	}
	if made {
		logger.Info("made this node's key", "file", cfg.KeyFile, "key", k.Name())
	}
	return k, nil
}
