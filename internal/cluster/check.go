package cluster

// CheckState is how a subject was found.
type CheckState string

// The states of a subject.
const (
	CheckOK   CheckState = "ok"
	CheckWarn CheckState = "warn" // it works, and may hurt, or is otherwise afterwards
	CheckFail CheckState = "fail" // the node could not do its part, or it speaks against what is asked for
	// CheckUnknown: it could not be looked at.
	CheckUnknown CheckState = "unknown"
)

// Check is what was found of one subject: by doctor, before an adoption, before a server is followed.
type Check struct {
	Subject string     `json:"subject"`
	State   CheckState `json:"state"`
	// Found says in a line what was found, Do what to do about it; "" = nothing.
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
	// Figures are what was measured, with the unit last in each name.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Worst returns the worst state of checks, of which CheckUnknown counts as CheckOK.
func Worst(checks []Check) CheckState {
	worst := CheckOK
	for _, c := range checks {
		if c.State == CheckFail || c.State == CheckWarn && worst == CheckOK {
			worst = c.State
		}
	}
	return worst
}

// Failed names the subjects that speak against it.
func Failed(checks []Check) (subjects []string) {
	for _, c := range checks {
		if c.State == CheckFail {
			subjects = append(subjects, c.Subject)
		}
	}
	return subjects
}
