package report

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2"
)

//go:embed articles.toml
var articlesFile []byte

// articles are the published figures.
type articles struct {
	Main struct {
		Source  string `toml:"source"`
		Machine string `toml:"machine"`
		System  string `toml:"system"`
	} `toml:"main"`
	Throughput []struct {
		Network  string    `toml:"network"`
		Workload string    `toml:"workload"`
		Threads  []int     `toml:"threads"`
		MGR      []float64 `toml:"mgr"`
		MGRAfter []float64 `toml:"mgr-after"`
		DN       []float64 `toml:"dn"`
	} `toml:"throughput"`
	Jitter []struct {
		Network string  `toml:"network"`
		MGR     float64 `toml:"mgr_percent"`
		DN      float64 `toml:"dn_percent"`
	} `toml:"jitter"`
	RTO   []sentence `toml:"rto"`
	RPO   []sentence `toml:"rpo"`
	Apply []sentence `toml:"apply"`
	Pair  []pair     `toml:"pair"`
}

type sentence struct {
	Workload string `toml:"workload"`
	Text     string `toml:"text"`
}

// pair has the figures of two systems at one point.
type pair struct {
	Source    string  `toml:"source"`
	Workload  string  `toml:"workload"`
	Threads   int     `toml:"threads"`
	System    string  `toml:"system"`
	SystemTPS float64 `toml:"system_tps"`
	Other     string  `toml:"other"`
	OtherTPS  float64 `toml:"other_tps"`
}

func loadArticles() (articles, error) {
	var a articles
	if err := toml.Unmarshal(articlesFile, &a); err != nil {
		return a, fmt.Errorf("decode the articles' figures: %w", err)
	}
	return a, nil
}

// ratio is the TPS of the articles' system DN divided by that of the other system; 0 = not published.
func (a articles) ratio(other, network, workload string, threads int) float64 {
	for _, t := range a.Throughput {
		i := slices.Index(t.Threads, threads)
		if t.Network != network || t.Workload != workload || i < 0 {
			continue
		}
		switch other {
		case "mgr":
			return t.DN[i] / t.MGR[i]
		case "mgr-after":
			return t.DN[i] / t.MGRAfter[i]
		}
	}
	return 0
}

func said(list []sentence, workload string) string {
	for _, s := range list {
		if s.Workload == workload {
			return s.Text
		}
	}
	return ""
}
