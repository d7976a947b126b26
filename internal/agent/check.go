package agent

import (
	"errors"
	"io/fs"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/agent/readers"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// ErrLogGone is CheckStart's error where the log is gone. Such a node may be about to be rebuilt.
var ErrLogGone = datadir.ErrLogGone

// ErrInUse means that an agent has the data directory.
var ErrInUse = datadir.ErrInUse

// CheckIssuedKey says why the key of [peer_tls] cannot be used; nil = it can, or there is none. CheckStart says it, too, if
// the agent would end at that.
func CheckIssuedKey(cfg config.Config) error { return keys.CheckIssued(cfg) }

// CheckStart says why an agent with a configuration would end at its start, by what is in its data directory and in the
// files of its key; nil = nothing there is in the way. It changes nothing.
func CheckStart(cfg config.Config) error {
	data, last, err := readDataDir(cfg)
	if err == nil {
		err = keys.Check(cfg, last.State, data.Fresh())
	}
	if err == nil {
		_, err = loadAuthority(cfg)
	}
	if err == nil {
		_, err = data.Refused()
	}
	if err != nil || data.Life() == datadir.Removed || data.Life() == datadir.Superseded {
		return err
	}
	if cfg.Self().Kind != cluster.KindLogger {
		if _, err := mysqld.LoadSecrets(data.Join(secretsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if cfg.Feed.ReadersListen != "" {
			for _, r := range cfg.Readers {
				if _, err := readers.Account(r); err != nil {
					return err
				}
			}
		}
		if err := new(datadir.Mark).Load(data.Dir); err != nil {
			return err
		}
	}
	if err := data.CheckKnown(); err != nil {
		return err
	}
	if own := data.Own(); data.Life() != datadir.Joining { // else what is there is made again
		if _, err := data.State(cfg.ClusterMembers(), own.State, 1); err != nil {
			return err
		}
	}
	return data.CheckLog()
}
